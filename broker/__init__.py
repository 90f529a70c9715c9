"""The broker: topics, groups, sending, pulling, offsets, and the server around them."""
