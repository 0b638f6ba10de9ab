"""Records of shared results: their keys, their form and their seals."""
