"""The HTTP server under placement-api: waitress, which gives a thread only requests that are there whole, in the
processes of gunicorn.

``channel`` says when waitress gives a connection up, and ``worker`` is what gunicorn starts.
"""
