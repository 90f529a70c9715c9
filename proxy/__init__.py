"""The gRPC port for clients of RocketMQ 5, an adapter over the broker's operations as its handlers are.

Needs the extra ``grpc`` (hpack); nothing else imports this folder before the port is used.
"""
