"""What operators use: explain, reports, audit, adoption, the page and the metrics. The API imports nothing of it."""
