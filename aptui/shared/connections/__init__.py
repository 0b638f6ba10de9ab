"""Records of the gateway's connections: addresses, sessions, actions of users on them, and the rules for these actions."""
