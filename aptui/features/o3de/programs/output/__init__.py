"""What an asset processor says: lines, logs and reports in O3DE's words."""
