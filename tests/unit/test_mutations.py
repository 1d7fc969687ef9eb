"""The list of mutations fits the code."""

from __future__ import annotations

import pathlib

from tools import mutations


def test_no_mutation_is_stale() -> None:
    """A fragment that is not in the file, or there twice, has to be rewritten for the changed code."""
    all_mutations = mutations.read_mutations()
    assert [(reason, str(mutation)) for mutation in all_mutations if (reason := mutation.staleness())] == []


def test_a_stale_fragment_is_absent_or_ambiguous(tmp_path: pathlib.Path) -> None:
    file = tmp_path / 'module.py'
    file.write_text('first = 1\nsecond = 1\n')
    reasons = [mutations.Mutation(str(file), fragment, '').staleness() for fragment in ('first', 'third', ' = 1')]
    assert reasons == ['', 'absent from the file', 'ambiguous, 2 times in the file']
    file.unlink()
    assert mutations.Mutation(str(file), 'first', '').staleness() == 'absent from the file'
