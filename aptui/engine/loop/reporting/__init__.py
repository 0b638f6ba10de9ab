"""What an engine says of itself: notices and sentences, runs that began, its forecast, its sessions."""
