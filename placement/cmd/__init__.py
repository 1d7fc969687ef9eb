"""The commands: placement-api, placement-manage, placement-status, and the exporter of the metrics."""
