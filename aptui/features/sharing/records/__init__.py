"""What a shared result is called, says and is sealed with."""
