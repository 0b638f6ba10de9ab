"""Records of the gateway's connections, the rules for changing them, and the limits of connections of our HTTP servers."""
