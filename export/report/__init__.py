"""Counts, checks and their words."""
