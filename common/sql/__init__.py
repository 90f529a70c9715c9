"""The SQL92 filter language: words, terms, values, and compiled filters. Pure; no store, no wire."""
