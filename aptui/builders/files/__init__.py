"""Files in formats that several builders read, safely, and the names in them; each builder uses them in its own way."""
