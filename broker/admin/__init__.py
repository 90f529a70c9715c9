"""What administrators ask: topics, groups, cleaning, statistics."""
