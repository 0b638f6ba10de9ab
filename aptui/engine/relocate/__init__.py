"""Moving and deleting sources with their metadata and what names them."""
