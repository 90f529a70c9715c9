"""Records that several tests of the codecs start from."""

from collections.abc import Callable

import pytest

from rocketlet.common.ids import encode_host
from rocketlet.common.record import NewRecord


@pytest.fixture(scope="session")
def make_record() -> Callable[..., NewRecord]:
    """Return a maker of records to store, with a complete default."""

    def make(**changes: object) -> NewRecord:
        fields: dict[str, object] = {
            "topic": "TopicA",
            "queue_id": 3,
            "body": b"hi",
            "property_text": b"TAGS\x01TagA\x02",
            "parsed": {"TAGS": "TagA"},
            "flag": 7,
            "sys_flag": 0,
            "born_at_ms": 1_700_000_000_000,
            "born_host": encode_host("10.0.0.1", 50000),
        }
        return NewRecord(**{**fields, **changes})  # pyright: ignore[reportArgumentType]  # the tests choose the fields

    return make
