"""The local wire between one engine and its clients: what may be said, how it is written, both ends of the socket."""
