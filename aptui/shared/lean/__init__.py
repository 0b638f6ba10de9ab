"""A process that loads less, and keeps less, than its libraries would have it."""
