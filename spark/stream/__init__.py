"""Structured streams over a live cluster."""
