"""What changed, numbered, in the transaction that changed it."""
