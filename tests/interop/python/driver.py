"""A long-lived process that runs our push consumer for a test, with the commands and answers of the other drivers.

Commands run side by side. At the end of stdin, and when it is killed, the process ends without any good-bye.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from rocketlet import client
from rocketlet.client import ConsumeFrom, PushConsumer, PushConsumerSettings, ReceivedMessage

Arguments = dict[str, Any]
Answer = dict[str, Any]


class Recording:
    """A push consumer with everything that it received."""

    def __init__(self, arguments: Arguments) -> None:
        strategy = getattr(client, arguments.get("strategy", "AllocateMessageQueueAveragely"))
        options = arguments.get("strategyOptions", {})
        settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, strategy=strategy(**options))
        self.consumer = PushConsumer(arguments["group"], arguments["namesrv"], settings=settings)
        self.deliveries: list[Answer] = []
        self._changed = asyncio.Condition()
        for topic, expression in arguments["subscriptions"].items():
            self.consumer.subscribe(topic, expression, self._receive)

    async def wait_deliveries(self, count: int, timeout_ms: int) -> list[Answer]:
        """Return the deliveries, once there are so many or the time is over."""
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._changed:
                await self._changed.wait_for(lambda: len(self.deliveries) >= count)
        except TimeoutError:
            pass
        return self.deliveries

    async def _receive(self, messages: list[ReceivedMessage]) -> None:
        self.deliveries += map(delivery, messages)
        async with self._changed:
            self._changed.notify_all()


def delivery(message: ReceivedMessage) -> Answer:
    """Return a message as the drivers' JSON shows it."""
    return {
        "topic": message.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "logOffset": message.log_offset,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "tags": message.tags,
        "keys": " ".join(message.keys),
        "properties": dict(message.properties),
        "body": message.body,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_at_ms,
        "storeTimestamp": message.stored_at_ms,
        "bornHost": "{}:{}".format(*message.born_host),
        "storeHost": "{}:{}".format(*message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCrc": message.body_crc,
        "storeSize": message.store_size,
    }


class PythonDriver:
    """The commands."""

    def __init__(self) -> None:
        self._recordings: dict[str, Recording] = {}
        self._commands: dict[str, Callable[[Arguments], Awaitable[Answer]]] = {
            "hello": self._hello,
            "consumer.start": self._start,
            "consumer.received": self._received,
            "consumer.stop": self._stop,
        }

    async def answer(self, line: bytes) -> None:
        """Run a command and print its answer."""
        arguments = msgspec.json.decode(line, type=dict[str, Any])
        try:
            answer = {"ok": await self._commands[arguments["do"]](arguments)}
        except Exception as error:  # the test hears of whatever a command raises
            answer = {"error": {"type": type(error).__name__, "code": None, "message": str(error)}}
        os.write(1, msgspec.json.encode({"id": arguments["id"], **answer}) + b"\n")

    async def _hello(self, _arguments: Arguments) -> Answer:
        return {"client": "python", "pid": os.getpid()}

    async def _start(self, arguments: Arguments) -> Answer:
        recording = Recording(arguments)
        await recording.consumer.__aenter__()
        self._recordings[arguments["name"]] = recording
        return {"clientId": recording.consumer.client_id}

    async def _received(self, arguments: Arguments) -> Answer:
        recording = self._recordings[arguments["name"]]
        deliveries = await recording.wait_deliveries(arguments["count"], arguments["timeoutMs"])
        return {"messages": deliveries}

    async def _stop(self, arguments: Arguments) -> Answer:
        await self._recordings[arguments["name"]].consumer.__aexit__(None, None, None)
        return {}


async def main() -> None:
    """Answer until stdin ends."""
    lines = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    driver = PythonDriver()
    async with asyncio.TaskGroup() as running:
        while line := await lines.readline():
            running.create_task(driver.answer(line))
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
