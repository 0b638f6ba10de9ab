"""Built-in builders; they use only the SDK and the same entry points as builders of other packages."""
