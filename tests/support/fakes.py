"""Bodies that look like records of the log that they stand in."""

from logbuilder import HOST, LogBuilder

from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord, encode_record

_BODY_AT = 88
_TEXT = encode_properties({"KEYS": "fake"})
TAIL_BYTES = 1 + len("Topic") + 2 + len(_TEXT)
"""What follows the body of a record that ``add_with_fakes`` appends."""


def fake_record(log_offset: int, size: int = 0, reach: int = 0) -> bytes:
    """Return a sound record for a place of the log, of that size or the least there is.

    Its properties reach on into what follows it, by so many bytes.
    """
    body = b"f" * max(0, size - _BODY_AT - TAIL_BYTES)
    new = NewRecord("Topic", 0, body, _TEXT, {}, 0, 0, 1, HOST)
    fake = bytearray(encode_record(new, queue_offset=0, log_offset=log_offset, stored_at_ms=1 << 40, store_host=HOST))
    fake[:4] = (len(fake) + reach).to_bytes(4, "big")
    fake[-len(_TEXT) - 2 : -len(_TEXT)] = (len(_TEXT) + reach).to_bytes(2, "big")
    return bytes(fake)


def add_with_fakes(log: LogBuilder, gap: int, count: int, size: int, reach: int = 0) -> None:
    """Append a record whose body holds sound records in a row, each with the log offset at which it stands.

    The last of them reaches on by so many bytes.
    """
    at = log.end + _BODY_AT
    body = b"g" * gap
    for number in range(count):
        body += fake_record(at + len(body), size, reach if number == count - 1 else 0)
    log.add(body, properties=_TEXT)
