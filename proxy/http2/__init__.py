"""The server's side of HTTP/2: bytes in and events out, calls in and bytes out, within limits.

Only ``protocol`` knows a socket and the event loop. Nothing here knows gRPC, messages or the broker.
"""
