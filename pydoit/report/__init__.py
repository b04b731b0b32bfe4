"""Reports of the last build, as data and as tables."""
