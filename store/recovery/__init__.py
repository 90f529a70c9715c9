"""What makes queues and index from the log, live and after an unclean stop, and brings them to the disk."""
