"""What Spark does with the reader of a stream: batch after batch, with a checkpoint that outlives the reader."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from rocketlet.spark.stream.stream_reader import ClusterStreamReader

EVERYTHING = ReadAllAvailable()


class StreamRun:
    """A stream; ``restart`` goes on with a new reader, as after the end of the driver."""

    def __init__(
        self, make_reader: Callable[[Mapping[str, str]], ClusterStreamReader], options: Mapping[str, Any]
    ) -> None:
        self._make_reader = make_reader
        self.options = {name: str(value) for name, value in options.items() if value is not None}
        self.batches: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.restart()

    def restart(self) -> None:
        """Go on with a new reader."""
        self.reader = self._make_reader(self.options)

    @property
    def start(self) -> dict[str, Any]:
        """Where the next batch begins."""
        return self.batches[-1][1] if self.batches else through_json(self.reader.initialOffset())

    def plan(self, limit: ReadLimit = EVERYTHING) -> bool:
        """Fix the next batch, and tell whether there is one."""
        end = through_json(self.reader.latestOffset(self.start, limit))
        if end == self.start:
            return False
        self.batches.append((self.start, end))
        return True

    def read(self) -> list[str]:
        """Return the bodies of the last batch."""
        start, end = self.batches[-1]
        parts = [self.reader.read(partition) for partition in self.reader.partitions(start, end)]
        return [body.decode() for part in parts for batch in part for body in batch.column("body").to_pylist()]

    def drain(self, limit: ReadLimit = EVERYTHING) -> list[list[str]]:
        """Return the bodies of the batches that are not empty, until nothing is new."""
        found: list[list[str]] = []
        while self.plan(limit):
            found.append(sorted(self.read()))
        return [batch for batch in found if batch]

    @staticmethod
    def joined(batches: Iterable[list[str]]) -> list[str]:
        """Return the bodies of all batches, sorted."""
        return sorted(itertools.chain.from_iterable(batches))


def through_json(offset: dict[str, Any]) -> dict[str, Any]:
    """Return what Spark hands back of an offset."""
    return json.loads(json.dumps(offset))
