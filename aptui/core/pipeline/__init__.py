"""Events in, commands and notices out: what is owed, what runs, what became of it. Records it works on live in `core.state`."""
