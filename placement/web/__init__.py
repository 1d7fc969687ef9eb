"""What every request passes and what handlers read and answer with: identity, limits, microversion, errors, policy."""
