"""Handing out messages: checks, reading, long polling, queries."""
