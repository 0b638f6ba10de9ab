"""The demo project: generated sources for every kind of builder. Only the verb `demo` imports this package."""
