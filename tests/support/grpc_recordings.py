"""The exchanges of gRPC that were recorded from a proxy of 5.4.0."""

import json
import pathlib
from typing import Any

VECTORS = pathlib.Path(__file__).parents[1] / "vectors" / "grpc"


def load_exchanges(name: str) -> list[dict[str, Any]]:
    """Return the exchanges of a scenario."""
    return json.loads((VECTORS / f"{name}.json").read_text())["exchanges"]
