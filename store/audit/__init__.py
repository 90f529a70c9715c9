"""Checking and repairing a directory that nobody has open."""
