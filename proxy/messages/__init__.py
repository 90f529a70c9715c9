"""The messages of the gRPC protocol, and how stored messages and refusals become them; no calls, no broker."""
