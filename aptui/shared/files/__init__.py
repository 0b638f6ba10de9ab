"""Files: replaced whole or not at all, told from Git LFS pointers, kept below the folders of a project."""
