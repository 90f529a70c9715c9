"""Consumers over a group: push and pull, concurrently and in order."""
