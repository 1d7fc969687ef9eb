"""``placement.wsgi.api:application``, the name under which other services of this API are deployed."""

from __future__ import annotations

from placement.wsgi import application

__all__ = ['application']
