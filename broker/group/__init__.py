"""Consumer groups: members, offsets, locks, filters, and what their clients ask."""
