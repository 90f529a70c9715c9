"""The index file by key: slots, entries, queries."""
