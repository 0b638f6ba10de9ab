"""What the pipeline holds while jobs are in flight: working set, ledger, commits, dependency graph, intermediates."""
