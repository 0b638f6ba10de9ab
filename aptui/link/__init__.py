"""The local wire between one engine and its clients: requests, their encoding, and both ends of the socket."""
