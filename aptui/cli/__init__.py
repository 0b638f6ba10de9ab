"""The command line: maps words to verbs, and errors to exit codes. The module `verbs` lists the verbs and their modules."""
