"""Products searched for assets that they name and do not declare."""
