"""Access to the gateway: addresses, tokens, scopes and limits."""
