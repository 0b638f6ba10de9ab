"""What runs and products are like, as plain values: what a run reported and failed of, facts and quality of products, checks."""
