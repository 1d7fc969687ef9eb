"""What the operations tests run beside the service: Keystone, nginx, uWSGI, and load."""
