"""An S3 server of one test process: buckets are folders."""

import json
import pathlib
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import Any, cast

from localbucket import S3Handler  # pyright: ignore[reportMissingTypeStubs] # it has none

from rocketlet.export.plan.filesystems import Storage


@contextmanager
def serve_s3(folder: pathlib.Path) -> Generator[Storage]:
    """Serve the folders of a folder as buckets, and yield what a client needs to know."""
    handler: Any = type("Handler", (cast("Any", S3Handler),), {"data_root": folder, "log_message": _say_nothing})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="s3")
        thread.start()
        try:
            yield Storage(json.dumps(_options(server.server_address[1])))
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    """Leaves no thread behind: a client keeps its connections, each of which has one."""

    daemon_threads = False  # those are not waited for

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: list[socket.socket] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread."""
        self._connections.append(request)
        super().process_request(request, client_address)

    def server_close(self) -> None:
        """End all connections, and wait for their threads."""
        for connection in self._connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()


def _options(port: int) -> dict[str, str | bool | int]:
    return {
        "access_key": "test",
        "secret_key": "test",
        "region": "us-east-1",
        "scheme": "http",
        "endpoint_override": f"127.0.0.1:{port}",
    }


def _say_nothing(*_: object) -> None:
    """Log no requests."""
