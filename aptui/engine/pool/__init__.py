"""Worker processes as seen from the engine: started, fed, limited, replaced. What runs inside them is in `aptui.worker`."""
