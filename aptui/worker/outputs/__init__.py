"""What a run made: its products in their folder, checked, and what they depend on."""
