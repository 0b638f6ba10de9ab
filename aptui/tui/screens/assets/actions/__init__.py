"""What can be done with an asset of the Assets screen."""
