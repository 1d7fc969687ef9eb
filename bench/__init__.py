"""The benchmark: measures placement-api over HTTP on databases that it fills, one checkout or two in turn."""
