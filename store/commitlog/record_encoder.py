"""New records as bytes at their place, within the store's limits (store.md §2.7, §2.8).

With ``enabledAppendPropCRC`` each record ends in a checksum of all its bytes, which is a property. It is computed when
the place is final; the limit of the properties includes it.
"""

from collections.abc import Sequence

import msgspec

from ...common.errors import MessageIllegalError
from ...common.record import BLANK_BYTES, NewRecord, encode_record, reserve_property_crc, seal_property_crc
from ..files.store_config import StoreConfig

_PROPERTY_ROOM = 65_536


class RecordEncoder:
    """Encodes records; ``store_host`` is the host that they name."""

    def __init__(self, config: StoreConfig, store_host: bytes) -> None:
        self.store_host = store_host
        self._seals = config.seals_records
        self._body_limit = config.max_message_bytes
        self._record_limit = min(config.max_message_bytes + _PROPERTY_ROOM, config.segment_bytes - BLANK_BYTES)
        self._sure_limit = min(self._body_limit, self._record_limit)  # what is below it keeps both

    def encode(self, new: NewRecord, queue_offset: int, log_offset: int, stored_at_ms: int) -> bytes:
        """Return the record at its place (raises ``MessageIllegalError``)."""
        if self._seals:
            new = msgspec.structs.replace(new, property_text=reserve_property_crc(new.property_text))
        try:
            data = encode_record(new, queue_offset, log_offset, stored_at_ms, self.store_host)
        except ValueError as error:
            raise MessageIllegalError(str(error)) from error
        if len(data) > self._sure_limit:
            self._check(data, new.body)
        return seal_property_crc(data) if self._seals else data

    def _check(self, data: bytes, body: bytes) -> None:
        if len(data) > self._record_limit:
            raise MessageIllegalError(f"record is {len(data)} bytes, limit is {self._record_limit}")
        if len(body) > self._body_limit:
            raise MessageIllegalError(f"body is {len(body)} bytes, limit is {self._body_limit}")

    def encode_run(
        self, parts: Sequence[NewRecord], queue_offset: int, log_offset: int, stored_at_ms: int
    ) -> list[bytes]:
        """Return records that follow each other from a place on (raises ``MessageIllegalError``)."""
        encoded: list[bytes] = []
        for number, new in enumerate(parts):
            encoded.append(self.encode(new, queue_offset + number, log_offset, stored_at_ms))
            log_offset += len(encoded[-1])
        return encoded
