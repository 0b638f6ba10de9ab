"""A recording on the screen: news that come again, at the pace and from the moment that people choose."""
