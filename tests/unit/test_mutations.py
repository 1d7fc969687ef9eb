"""The list of mutations fits the code."""

from __future__ import annotations

from tools import mutations


def test_no_mutation_is_stale() -> None:
    """A fragment that is not in the file, or there twice, has to be rewritten for the changed code."""
    assert [str(mutation) for mutation in mutations.read_mutations() if mutation.is_stale()] == []
