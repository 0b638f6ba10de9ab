"""Access to files: atomic replacement, confinement to a project's folders, Git LFS pointers, and the state of repositories."""
