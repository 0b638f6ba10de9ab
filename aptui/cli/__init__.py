"""The command line: words to verbs, errors to exit codes. What a verb does lives in `verbs`."""
