"""The page in a real browser: needs Chromium, and the extra ``browser``."""
