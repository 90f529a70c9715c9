"""History from store directories, then live, as one read."""
