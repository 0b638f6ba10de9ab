"""Who may come in and how much: tokens, scopes, lists, limits."""
