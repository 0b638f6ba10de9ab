"""Messages of the gateway's WebSocket: records, names and JSON form; this package opens no sockets."""
