"""The claim: how allocations are written, so that nothing is promised twice."""
