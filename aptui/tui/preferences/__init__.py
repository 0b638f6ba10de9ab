"""Files of the user: themes, keys, remembered values."""
