"""What a test sees of a broker: what clients ask, what is stored, and how far its consumers are."""
