"""The broker's settings and their Java keys."""
