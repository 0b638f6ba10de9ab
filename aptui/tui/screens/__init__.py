"""The screens, one folder for each: Jobs, Assets, Logs, Builders, Tools. The frame around them is in `tui/frame`."""
