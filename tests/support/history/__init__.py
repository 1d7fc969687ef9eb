"""A history checker: concurrent clients load a Placement service, and their records show whether it kept the rules."""
