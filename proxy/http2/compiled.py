"""The compiled twins of what each call of gRPC passes; ``codecs`` is None without a compiler."""

import os

codecs = None
if not os.environ.get("ROCKETLET_PURE_PYTHON"):  # for comparisons
    try:
        from ...common import _grpc_codecs as codecs  # pyright: ignore[reportUnusedImport]  # what uses it takes it from here
    except ImportError:
        codecs = None
