"""Reports drawn with matplotlib."""
