"""Tests with the real Keystone, web servers and process managers that placement is run with."""
