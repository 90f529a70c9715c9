"""Bodies of POP: acknowledgements of many messages (``BatchAckMessageRequestBody``; spec pop.md §4.2).

Names are short, as the official client writes them; long ones are read as well.
"""

import msgspec

from ...common.java_json import Int32, Int64


class BatchAckEntry(msgspec.Struct, kw_only=True):
    """Messages of one lease; ``b`` is base64 of a little-endian bit set of their distances from ``so``."""

    c: str = ""
    t: str = ""
    r: str = ""
    so: Int64 = 0
    q: Int32 = 0
    rq: Int32 = 0
    pt: Int64 = 0
    it: Int64 = 0
    b: str = ""


class BatchAckBody(msgspec.Struct, rename="camel", kw_only=True):
    """What a consumer is done with at one broker."""

    broker_name: str | None = None
    acks: list[BatchAckEntry] = msgspec.field(default_factory=list[BatchAckEntry])
