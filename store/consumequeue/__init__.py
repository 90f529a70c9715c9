"""Queues over the log: entries, batch queues, reading and search by time. Knows no index."""
