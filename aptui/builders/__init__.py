"""Built-in builders; they see the SDK alone and come in through the same entry points as everyone else's."""
