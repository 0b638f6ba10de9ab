"""Output of an asset processor: lines, logs and reports in O3DE's words."""
