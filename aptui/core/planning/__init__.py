"""Which jobs there are to do, and in which order they start: builders of a source, ranks, scarce resources."""
