"""Connections, server and client: sockets, timers, limits. Knows no request code of its own."""
