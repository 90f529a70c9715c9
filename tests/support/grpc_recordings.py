"""The exchanges of gRPC that were recorded from a proxy of 5.4.0."""

import json
import pathlib
from datetime import UTC, datetime
from typing import Any

VECTORS = pathlib.Path(__file__).parents[1] / "vectors" / "grpc"


def load_exchanges(name: str) -> list[dict[str, Any]]:
    """Return the exchanges of a scenario."""
    return json.loads((VECTORS / f"{name}.json").read_text())["exchanges"]


def recorded_at_ms(exchange: dict[str, Any]) -> int:
    """Return when an exchange was recorded."""
    text = exchange["metadata"]["x-mq-date-time"]
    return int(datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)
