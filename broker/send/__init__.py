"""Taking messages: checks, properties, storing, and when their senders are answered."""
