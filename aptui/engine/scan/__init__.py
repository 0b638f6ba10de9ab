"""The union of the scan folders compared with what is remembered; `.meta` files; bytes compared. It reads and decides nothing."""
