"""The pipeline's memory while jobs are in flight: working set, ledger, commits, dependency graph, intermediates."""
