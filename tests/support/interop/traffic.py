"""Messages of all kinds, for tests that compare what several readers make of one store."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer, Received
from interop.driver import Driver

COUNTS: Final = {"orders": 320, "letters": 109, "batches": 60}
GROUP: Final = "billing"  # has consumed all orders
# Several log segments, queue files and index files.
SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}


def make_orders() -> list[Outgoing]:
    """Return messages with everything that a sender can give them."""
    return [
        Outgoing(
            f"bestellung {number} für 世界 😀".encode(),
            tags=f"täg-{number % 7}",
            keys=[f"key-{number}", "every"],
            properties={"größe": f"{number} 公斤"},
            flag=number,
        )
        for number in range(300)
    ]


def make_letters() -> list[Outgoing]:
    """Return messages of 6 to 18,000 bytes without tags and keys; those above 4096 travel compressed."""
    return [Outgoing(b"%06d" % words * words) for words in range(1, 3001, 34)]


def compress_with(java: Driver, kind: str) -> dict[str, str]:
    """Return the producer settings for a kind of compression; a client older than 5 has ZLIB alone and no setting."""
    return {"compressType": kind} if java.call("hello")["client"].startswith("V5") else {}


def write_traffic(java: Driver, namesrv: str) -> None:
    """Send single, one-way, batched and variously compressed messages, and let a group consume one topic."""
    orders, letters = make_orders(), make_letters()
    with Producer(java, namesrv=namesrv) as producer:
        producer.send_all("orders", *orders, mode="async")
        producer.send("orders", *orders[:20], mode="oneway")
        producer.send_all("letters", *letters)
        for start in range(0, COUNTS["batches"], 20):
            producer.send_all("batches", *orders[start : start + 20], mode="batch")
    for kind in ("LZ4", "ZSTD"):
        with Producer(java, namesrv=namesrv, settings=compress_with(java, kind)) as producer:
            producer.send_all("letters", *letters[-10:], mode="async")
    with PushConsumer(java, namesrv=namesrv, group=GROUP, subscriptions={"orders": "*"}) as consumer:
        received = Counter(message.body for message in consumer.received(COUNTS["orders"]))
    assert received == Counter(message.body for message in [*orders, *orders[:20]])


def read_topic(java: Driver, namesrv: str, topic: str) -> Sequence[Received]:
    """Return all messages of a topic as the official client pulls them."""
    with PullConsumer(java, namesrv=namesrv) as reader:
        return reader.read_all(topic)
