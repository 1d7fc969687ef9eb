"""The middleware that every request passes, and what handlers use to read requests and to make responses."""
