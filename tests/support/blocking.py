"""A call of ours that blocks an event loop fails its test.

blockbuster watches calls that may wait for disk, network or another thread, whenever a loop runs in the thread that
makes them. What is allowed, and why:

    socket.connect in reachable_host     a datagram socket: only asks which address would be used
    os.path.abspath                      arithmetic on text
    lock.acquire at an executor's end    its thread has nothing left to do
    os.stat, os.mkdir for a new file     one file may be created on the loop, and the directory it needs
    reading at a server's start          nobody is served yet
    RocketmqBroker._call                 a test asks the broker's thread, and says itself that it waits
"""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

FOLDERS = ("broker", "cli", "client", "common", "export", "namesrv", "remoting", "store", "testing")


@pytest.fixture(autouse=True)
def blocking_calls() -> Iterator[BlockBuster]:
    """Watch the loops of the test's process."""
    with blockbuster_ctx([f"rocketlet.{folder}" for folder in FOLDERS]) as watched:
        watched.functions["socket.socket.connect"].can_block_in("remoting/transport/addresses.py", "reachable_host")
        watched.functions["os.path.abspath"].deactivate()
        watched.functions["threading.Lock.acquire"].can_block_in("concurrent/futures/thread.py", "shutdown")
        watched.functions["threading.Lock.acquire"].can_block_in("testing/loop_thread.py", "call")
        for call in ("os.stat", "os.mkdir"):
            watched.functions[call].can_block_in("store/files/files.py", {"make_directories", "make_tree"})
        for call in ("os.stat", "io.BufferedReader.read", "io.TextIOWrapper.read"):
            watched.functions[call].can_block_in("namesrv/server.py", "_load_table")
            watched.functions[call].can_block_in("broker/topic/config_table.py", "load")
        yield watched
