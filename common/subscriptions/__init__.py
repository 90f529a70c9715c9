"""What consumers subscribe to: tags, SQL92 expressions, and how these are compiled."""
