"""Tools for operators: explain, reports, audit, adoption, the page and the metrics. The API needs only explain."""
