"""Sessions as people ask about them: which there were, what ran in them, how two differ, what became slower."""
