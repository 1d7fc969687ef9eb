"""The HTTP server of placement-api.

gunicorn starts and stops the processes for the API (``master``). In each, waitress reads the requests, and passes a
request to a thread only after it has arrived completely. ``worker`` has the process, ``threads`` its threads,
``processors`` counts what the process may use, ``socket_map`` has the loop over its sockets, ``channel`` a connection
with its limits and timeouts, and ``tasks`` the requests and responses of a connection. The exporter and the page of
operators use the same connections (``single_process``).
"""
