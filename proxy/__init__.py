"""The gRPC port for clients of RocketMQ 5, an adapter over the broker's operations as its handlers are.

Nothing imports this folder before the port is used: with hpack and protobuf it takes as long as the rest of a start.
"""
