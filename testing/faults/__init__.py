"""What goes wrong on purpose, where it comes in between, and what has gone wrong without being asked to."""
