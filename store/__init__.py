"""The files: commit log, consume queues, index, recovery; no sockets, no asyncio."""
