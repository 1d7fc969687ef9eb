"""What a running service says about itself: metrics for Prometheus and health checks, all off until configured."""
