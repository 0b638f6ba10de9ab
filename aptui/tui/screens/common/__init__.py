"""What several screens need: background tasks, navigation between them, lists, lines of tabs."""
