"""Files: replaced atomically, distinguished from Git LFS pointers, confined to the folders of a project; and Git's commits."""
