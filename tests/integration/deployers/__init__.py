"""The steps of nine tools that deploy OpenStack, with this service in place of the reference."""
