"""The engine that stays up: one session after the other over a cache, changed configurations, watched changes; not how to watch."""
