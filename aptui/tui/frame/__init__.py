"""The frame around every screen: status line, tabs, hints, command line, help, and what pops up; no pane lives here."""
