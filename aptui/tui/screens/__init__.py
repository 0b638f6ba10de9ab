"""The panes: one module each, with its parts beside it; what is around them is the frame's."""
