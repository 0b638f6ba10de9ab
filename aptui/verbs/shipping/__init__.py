"""What ships: asset lists, bundles, and what is wrong with what would ship."""
