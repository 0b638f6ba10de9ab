"""Worker processes from outside: started, given orders, limited, replaced. `aptui.worker` runs inside them."""
