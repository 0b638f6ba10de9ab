"""Pictures on the screen: what their headers say, how they are decoded beside it, and how few cells show many pixels."""
