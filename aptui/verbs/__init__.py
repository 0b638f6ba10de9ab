"""The verbs of the command line, one module a group; `cli` finds `<verb>` and `<verb>_arguments` in them by name."""
