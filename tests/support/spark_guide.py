"""What the guide to Spark is run on: its blocks of code, and a small shop whose files and broker they read.

frozen store     orders 0 to 199, payments of every second one, dead letters of every tenth payment
running broker   the same, and orders 200 to 299
"""

import asyncio
import datetime
import json
import pathlib
import re
import shutil
import sys
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from typing import Final

from subscribed import push_consumer
from threaded_cluster import ThreadedCluster

from rocketlet.client import (
    Admin,
    Message,
    Producer,
    ReceivedMessage,
    Retry,
)

CHECKOUT: Final = pathlib.Path(__file__).parent.parent.parent
PAGE: Final = CHECKOUT / "docs" / "guide" / "spark.md"
OLD_ORDERS: Final = 200
ORDERS: Final = 300
GROUP: Final = "billing"
TAGS: Final = ("created", "paid", "shipped")
_NAMESERVER: Final = "127.0.0.1:9876"
_DAY: Final = "2026-11-21"


def read_sections() -> dict[str, str]:
    """Return the text of each section of the page by its heading."""
    parts = re.split(r"^##? (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks_of(text: str, language: str) -> list[str]:
    """Return the blocks of a language in a section."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


class Shop:
    """A running broker, and a folder in which ``stores`` and ``lake`` lie."""

    def __init__(self, cluster: ThreadedCluster, folder: pathlib.Path) -> None:
        self.folder = folder
        self._cluster = cluster
        self._nameserver = cluster.nameserver
        cluster.start_broker()
        for topic in ("orders", "payments", "invoices"):
            cluster.create_topic(topic, 4)
        asyncio.run(send(self._nameserver, [order(number) for number in range(OLD_ORDERS)]))
        asyncio.run(send(self._nameserver, [payment(number) for number in range(0, OLD_ORDERS, 2)]))
        asyncio.run(fail_to_bill(self._nameserver, OLD_ORDERS // 2))
        cluster.stop_broker()
        shutil.copytree(cluster.store_of("broker-a"), folder / "stores" / "broker-a")
        cluster.start_broker()
        asyncio.run(send(self._nameserver, [order(number) for number in range(OLD_ORDERS, ORDERS)]))
        first_ms = min(message.stored_at_ms for message in self.messages("orders"))
        self._day = datetime.datetime.fromtimestamp(first_ms / 1000, datetime.UTC).date().isoformat()

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return what the broker has of a topic."""
        return asyncio.run(self._read(topic))

    async def _read(self, topic: str) -> list[ReceivedMessage]:
        async with Admin(self._nameserver) as admin:
            return [message async for message in admin.messages(topic)]

    def localize(self, text: str) -> str:
        """Return code of the page with the places, the address and the day of this shop."""
        return localize(text, self.folder, self._nameserver, self._day)


def localize(text: str, folder: pathlib.Path, nameserver: str, day: str) -> str:
    """Return code of the page with another folder, address and day."""
    text = text.replace(_NAMESERVER, nameserver).replace(_DAY, day)
    return re.sub(r"(?<=[\"' ])/(stores|lake)\b", rf"{folder}/\1", text)


def order(number: int) -> Message:
    """Return an order."""
    body = json.dumps({"id": number, "cents": 100 * number}).encode()
    properties = {"region": ("north", "south")[number % 2]}
    return Message("orders", body, tags=TAGS[number % 3], keys=[f"order-{number}"], properties=properties)


def payment(number: int) -> Message:
    """Return the payment of an order."""
    body = json.dumps({"id": number, "cents": 100 * number}).encode()
    return Message("payments", body, tags=("card", "cash")[number // 10 % 2], keys=[f"order-{number}"])


async def send(nameserver: str, messages: Sequence[Message]) -> None:
    """Send messages in their order."""
    async with Producer("shop", nameserver) as producer:
        for message in messages:
            await producer.send(message)


async def fail_to_bill(nameserver: str, payments: int, fails: Callable[[ReceivedMessage], bool] | None = None) -> None:
    """Consume all payments, and fail for every tenth order, or for what is told."""
    fails = is_broken if fails is None else fails
    seen = 0
    all_seen = asyncio.Event()

    async def bill(messages: list[ReceivedMessage]) -> Retry | None:
        nonlocal seen
        seen += len(messages)
        if seen == payments:
            all_seen.set()
        return Retry(delay_level=-1) if fails(messages[0]) else None

    async with push_consumer(nameserver, bill, group=GROUP, topic="payments"):
        await all_seen.wait()


def is_broken(message: ReceivedMessage) -> bool:
    """Tell whether a payment is one that cannot be billed."""
    return json.loads(message.body)["id"] % 10 == 0


class SparkHome:
    """A Spark whose nodes have all that our package needs, but not the package; it writes into one folder only."""

    def __init__(self, folder: pathlib.Path) -> None:
        import pyspark

        self._folder = folder
        self._home = folder / "home"
        self._home.mkdir(parents=True)
        origin = pathlib.Path(pyspark.__file__).parent
        for path in origin.iterdir():
            (self._home / path.name).symlink_to(path)
        self._write_settings()
        self._write_python(origin.parent)

    def variables(self) -> dict[str, str]:
        """Return the environment by which ``spark-submit`` uses it."""
        return {
            "SPARK_HOME": str(self._home),
            "SPARK_CONF_DIR": str(self._folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(self._folder / "python"),
        }

    def _write_settings(self) -> None:
        conf = self._folder / "conf"
        conf.mkdir()
        (conf / "log4j2.properties").write_text("rootLogger.level = off\n")
        java = f"-XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={self._folder}"
        settings = {
            "spark.ui.enabled": "false",
            "spark.local.dir": self._folder / "local",
            "spark.driver.extraJavaOptions": java,
            "spark.executor.extraJavaOptions": java,
        }
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))

    def _write_python(self, packages: pathlib.Path) -> None:
        python = self._folder / "python"
        python.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{packages}"\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)


def zip_package(target: pathlib.Path) -> None:
    """Write the package as it is installed, without what it depends on."""
    import rocketlet

    (root,) = map(pathlib.Path, rocketlet.__path__)
    packages = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    with zipfile.ZipFile(target, "w") as archive:
        for package in packages:
            for path in root.joinpath(*package.split(".")[1:]).glob("*.py"):
                archive.write(path, f"{package.replace('.', '/')}/{path.name}")
