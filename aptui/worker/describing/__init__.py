"""What builder classes say of themselves, asked in a process of its own."""
