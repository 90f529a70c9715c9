"""What Java wrote: cases of its codecs, store directories, and what its client read from them, as export rows."""

import base64
import hashlib
import ipaddress
import json
import pathlib
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from rocketlet.export.report.report import Report
from rocketlet.export.write.log_reader import ReadOptions

STORES = ("plain", "killed", "delay-retry", "batchcrc")
VECTORS = pathlib.Path(__file__).parents[1] / "vectors"
Row = dict[str, Any]
JavaStores = Mapping[str, pathlib.Path]


class Read(Protocol):
    """Reads stores whole, system topics too unless options say otherwise, and returns rows and report."""

    def __call__(self, *stores: pathlib.Path | str, options: ReadOptions | None = None) -> tuple[list[Row], Report]:
        """Read the stores."""
        ...


def java_cases(path: str) -> list[dict[str, Any]]:
    """Return the cases of a file below ``tests/vectors``: what Java's classes were given and what they returned."""
    return json.loads((VECTORS / path).read_text("utf-8"))


def unpack_store(vectors: pathlib.Path, name: str, folder: pathlib.Path) -> pathlib.Path:
    """Unpack a store into a folder and return its directory."""
    with tarfile.open(vectors / "store" / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def load_truth(vectors: pathlib.Path, name: str) -> dict[str, Any]:
    """Read the truth file of a store."""
    return json.loads((vectors / "store" / f"{name}.json").read_text())


def truth_messages(truth: Mapping[str, Any]) -> list[Row]:
    """Return the messages of all queues as the truth file has them, in log order."""
    queues = [queue for topic in truth["topics"] for queue in topic["queues"]]
    return sorted((m for queue in queues for m in queue["messages"]), key=lambda m: m["physicOffset"])


def expected_row(message: Row) -> Row:
    """Return the row of a message, its body as a digest and its times as milliseconds."""
    properties = message["properties"]
    return {
        "topic": message["topic"],
        "queueId": message["queueId"],
        "queueOffset": message["queueOffset"],
        "logOffset": message["physicOffset"],
        "msgId": message["msgId"],
        "offsetMsgId": message["offsetMsgId"],
        "tags": properties.get("TAGS"),
        "keys": [word for word in properties.get("KEYS", "").split(" ") if word],
        "properties": properties,
        "body": _digest_of(message.get("decompressedBody", message["body"])),
        "flag": message["flag"],
        "sysFlag": message["sysFlag"],
        "bornTimestamp": message["bornTimestamp"],
        "storeTimestamp": message["storeTimestamp"],
        "bornHost": _host(message["bornHost"]),
        "storeHost": _host(message["storeHost"]),
        "reconsumeTimes": message["reconsumeTimes"],
        "preparedTransactionOffset": message["preparedTransactionOffset"],
        "bodyCrc": message["bodyCRC"],
    }


def comparable(rows: Iterable[Row]) -> list[Row]:
    """Return exported rows in the form of ``expected_row``, in log order."""
    done = [
        row
        | {
            "properties": dict(row["properties"]),
            "body": hashlib.sha256(row["body"]).hexdigest(),
            "bornTimestamp": _ms(row["bornTimestamp"]),
            "storeTimestamp": _ms(row["storeTimestamp"]),
        }
        for row in rows
    ]
    return sorted(done, key=lambda row: (row["logOffset"], row["queueOffset"]))


def is_inner_batch(message: Row) -> bool:
    """Tell whether a truth message is a record that holds several messages."""
    return bool(message["sysFlag"] & 0x80)


def _digest_of(body: Mapping[str, Any]) -> str:
    return body["sha256"] if "sha256" in body else hashlib.sha256(base64.b64decode(body["base64"])).hexdigest()


def _host(text: str) -> str:
    address, _, port = text.rpartition(":")
    ip = ipaddress.ip_address(bytes.fromhex(address))
    return f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"


def _ms(at: Any) -> int:
    return round(at.timestamp() * 1000)
