"""What depends on what, and why a job ran: questions about the graph, without an engine."""
