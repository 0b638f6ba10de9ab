"""The union of the scan folders compared with the stored state; `.meta` files; comparison of bytes. It only reads."""
