"""Sending: queues, attempts, batches, transactions, requests."""
