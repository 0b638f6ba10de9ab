"""Files of people: themes, keys, what is remembered."""
