"""The columns of an exported message, as an Arrow schema.

    topic                      string      not null
    queueId                    int32       not null
    queueOffset                int64       not null   position in the queue
    logOffset                  int64       not null   position of the record in the commit log
    msgId                      string      not null   UNIQ_KEY, else the offset id, as ``MessageClientExt.getMsgId``
    offsetMsgId                string      not null   broker and log offset, 32 or 56 upper-case hex digits
    tags                       string
    keys                       list<string>           words of KEYS; empty without keys, never null
    properties                 map<string, string>    all of them, TAGS and KEYS too; of equal names the last
    body                       binary                 inflated; null when it does not inflate as sysFlag says
    flag, sysFlag              int32       not null   sysFlag as stored: a compressed body keeps its bit
    bornTimestamp              timestamp              null outside of the years 1 to 9999, since the producer sets it
    storeTimestamp             timestamp
    bornHost, storeHost        string      not null   "192.0.2.1:10911", "[fd00::1]:10911"
    reconsumeTimes             int32       not null
    preparedTransactionOffset  int64       not null
    bodyCrc                    int32       not null   of the stored body, as stored

    realTopic                  string                 of what waits or failed, else null (``systemcolumns``), and the
    realQueueId                int32                  next three; only where system topics are included
    dueTimestamp               timestamp
    state                      string

Rules:

- Types are those that Spark's own conversion gives, so that a batch passes into Spark unchanged. Timestamps are
  instants in microseconds, UTC, as in Spark's Kafka source; they are whole milliseconds.
- An inner batch (sysFlag 0x80) is one row per message in it, as a consumer gets them: own body, flag, properties and
  queue offset; everything else, sysFlag and bodyCrc included, is that of the record that holds the batch.
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from ...common.errors import ConfigError, nearest
from ...store.commitlog.record_blocks import Longs, Mask

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
KEYS_TYPE: Final = pa.list_(pa.field("element", pa.string(), nullable=False))
PROPERTIES_TYPE: Final = pa.map_(
    pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=False)
)

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("queueId", pa.int32(), nullable=False),
        pa.field("queueOffset", pa.int64(), nullable=False),
        pa.field("logOffset", pa.int64(), nullable=False),
        pa.field("msgId", pa.string(), nullable=False),
        pa.field("offsetMsgId", pa.string(), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("keys", KEYS_TYPE, nullable=False),
        pa.field("properties", PROPERTIES_TYPE, nullable=False),
        pa.field("body", pa.binary()),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sysFlag", pa.int32(), nullable=False),
        pa.field("bornTimestamp", TIMESTAMP),
        pa.field("storeTimestamp", TIMESTAMP),
        pa.field("bornHost", pa.string(), nullable=False),
        pa.field("storeHost", pa.string(), nullable=False),
        pa.field("reconsumeTimes", pa.int32(), nullable=False),
        pa.field("preparedTransactionOffset", pa.int64(), nullable=False),
        pa.field("bodyCrc", pa.int32(), nullable=False),
    ]
)


SYSTEM_FIELDS: Final = {
    "realTopic": pa.field("realTopic", pa.string()),
    "realQueueId": pa.field("realQueueId", pa.int32()),
    "dueTimestamp": pa.field("dueTimestamp", TIMESTAMP),
    "state": pa.field("state", pa.string()),
}
FULL_SCHEMA: Final = pa.schema([*SCHEMA, *SYSTEM_FIELDS.values()])


def pick_columns(names: Iterable[str]) -> pa.Schema:
    """Return the schema of these columns, in the given order.

    Raises:
        ConfigError: There is no such column, or one is named twice.
    """
    fields: list[pa.Field] = []
    for name in names:
        if name not in FULL_SCHEMA.names:
            raise ConfigError(f"there is no column {name}{nearest(name, FULL_SCHEMA.names)}", key=name)
        field = FULL_SCHEMA.field(name)
        if field in fields:
            raise ConfigError(f"column {name} is named twice", key=name)
        fields.append(field)
    return pa.schema(fields)


FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999


def make_timestamps(at_ms: Longs, is_known: Mask | None = None) -> pa.Array:
    """Return the timestamps, null for what is not known."""
    absent = (at_ms < FIRST_MS) | (at_ms > LAST_MS)
    if is_known is not None:
        absent |= ~is_known
    return pa.array(at_ms * 1000, pa.int64(), mask=absent if absent.any() else None).view(TIMESTAMP)
