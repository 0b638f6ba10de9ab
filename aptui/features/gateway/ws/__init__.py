"""WebSocket sessions: what is asked, answered and told."""
