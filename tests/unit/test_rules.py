"""The rules of a request for candidates, and the request without some of them."""

from __future__ import annotations

import pytest

from placement.ops.explain.rules import Kind, Rule, without
from placement.search.request import CandidateRequest, RequestGroup
from placement.search.requirements import TreeCondition


@pytest.mark.parametrize('kind', [Kind.ROOT_REQUIRED, Kind.IN_TREE, Kind.GROUP_POLICY])
def test_rule_of_the_whole_request_that_nobody_can_leave_out_is_an_error(kind: Kind) -> None:
    """A new parameter that is a condition but belongs to no group needs a case of its own."""
    request = CandidateRequest(groups=(RequestGroup('', False, {'VCPU': 1}),))
    with pytest.raises(TypeError, match=kind.name):
        without(request, Rule(kind, (), 'uuid', TreeCondition(None, False, 'uuid')))
