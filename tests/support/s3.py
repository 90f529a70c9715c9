"""An S3 server of one test process: buckets are folders."""

import json
import pathlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any, cast

from localbucket import S3Handler  # pyright: ignore[reportMissingTypeStubs] # it has none

from rocketlet.export.plan.filesystems import Storage


@contextmanager
def serve_s3(folder: pathlib.Path) -> Generator[Storage]:
    """Serve the folders of a folder as buckets, and yield what a client needs to know."""
    handler: Any = type("Handler", (cast("Any", S3Handler),), {"data_root": folder, "log_message": _say_nothing})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="s3")
        thread.start()
        try:
            yield Storage(json.dumps(_options(server.server_address[1])))
        finally:
            server.shutdown()
            thread.join()


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
