"""Filters answered from queues and index before the log is read."""
