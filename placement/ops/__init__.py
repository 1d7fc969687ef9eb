"""Tools for operators: explain, reports, audit, adoption, the page and the metrics."""
