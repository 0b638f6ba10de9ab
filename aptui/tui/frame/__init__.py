"""The frame around every pane: status line, tabs, hints, command line, help, messages, themes."""
