"""The log of the selected job and the details of a line: panes, lines, search, what a run that goes on says. No table is here."""
