"""Access to the gateway: tokens, scopes, lists, limits."""
