"""Consuming by POP: the broker hands messages out for a time, nobody owns queues."""
