"""Calls of gRPC over HTTP/2: messages, metadata, deadlines and statuses. Knows no message of RocketMQ and no broker."""
