"""Reading a live cluster in tasks."""
