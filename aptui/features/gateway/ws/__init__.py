"""The gateway's WebSocket: sessions, requests, answers and notifications."""
