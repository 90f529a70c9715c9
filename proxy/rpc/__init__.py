"""Calls of gRPC over HTTP/2."""
