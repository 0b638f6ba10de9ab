"""Sessions on the screen: what ran when and why, where its time went, what became of the project, what is large."""
