"""The only room that makes, moves or deletes a product; catalogs, adoption, and results fetched instead of made."""
