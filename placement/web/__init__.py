"""The middleware that every request passes, and the functions with which handlers read requests and make responses."""
