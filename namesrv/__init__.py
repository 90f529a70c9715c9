"""The name server: a pure route table and the server around it."""
