"""The trees of the Assets screen: one in front, searched, kept current."""
