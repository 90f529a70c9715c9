"""Half messages: their end, their checks, and what is settled."""
