"""Files in formats that several builders read, safely, and the names in them; what becomes of them is each builder's."""
