"""Tests against real servers: databases, several processes, faults."""
