"""A long-lived process that runs the official Python client for RocketMQ 5: the commands of drivers that speak gRPC.

It runs in an environment of its own, which has nothing of ours. Commands run side by side. At the end of stdin the
process ends without any good-bye. What the client logs from a warning on goes to stderr.
"""

import asyncio
import base64
import functools
import importlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any, cast

# The client has no types: as a value it may be anything.
rocketmq: Any = importlib.import_module("rocketmq")
protocol: Any = importlib.import_module("rocketmq.grpc_protocol")
connection: Any = importlib.import_module("rocketmq.v5.client.connection")

Arguments = dict[str, Any]
Answer = dict[str, Any]
MOST_COMMANDS_AT_ONCE = 64
ASYNC_LIMIT_S = 30
OUTCOMES = {"commit": "COMMIT", "rollback": "ROLLBACK", "unknown": "TRANSACTION_RESOLUTION_UNSPECIFIED"}


class Deliveries:
    """What a client was handed, in order, for a test that waits for it."""

    def __init__(self) -> None:
        self._messages: list[Answer] = []
        self._changed = threading.Condition()

    def add(self, message: Any) -> None:
        """Keep a message and when it came."""
        with self._changed:
            self._messages.append(delivery(message))
            self._changed.notify_all()

    def wait(self, arguments: Arguments) -> Answer:
        """Return those from a number on, once there are so many in all or the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._messages) >= arguments["count"], timeout=arguments["timeoutMs"] / 1000
            )
            return {"messages": self._messages[arguments.get("from", 0) :]}


class Listener(rocketmq.MessageListener):
    """Refuses each message as often as the test wants, and takes its time for the first one of each."""

    def __init__(self, script: Arguments) -> None:
        self._failures: int = script.get("failures", 0)
        self._hang_ms: int = script.get("hangMs", 0)
        self.deliveries = Deliveries()

    def consume(self, message: Any) -> Any:
        """Keep a message, and answer by the script."""
        self.deliveries.add(message)
        if message.delivery_attempt == 1 and self._hang_ms:
            threading.Event().wait(self._hang_ms / 1000)
        if message.delivery_attempt <= self._failures:
            return rocketmq.ConsumeResult.FAILURE
        return rocketmq.ConsumeResult.SUCCESS


class Checker(rocketmq.TransactionChecker):
    """Lets a message say what becomes of it when the broker asks: its property "checked"."""

    def __init__(self) -> None:
        self.asked = Deliveries()

    def check(self, message: Any) -> Any:
        """Keep the question, and answer by the message."""
        self.asked.add(message)
        return resolution(message.properties.get("checked", "unknown"))


class HeldMessages:
    """A simple consumer, and all it has received: a message is known by its number."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer
        self._messages: list[Any] = []
        self._adding = threading.Lock()

    def add(self, messages: list[Any]) -> list[Answer]:
        """Number messages."""
        with self._adding:
            first = len(self._messages)
            self._messages += messages
        return [{**delivery(message), "number": number} for number, message in enumerate(messages, first)]

    def each(self, numbers: list[int], act: Callable[[Any], Any]) -> Answer:
        """Do something with each of the numbered messages; tell what failed."""
        return {"results": [attempt(lambda number=number: act(self._messages[number]) and {}) for number in numbers]}


class Producer:
    """A producer and its checker."""

    def __init__(self, arguments: Arguments) -> None:
        self.checker = Checker()
        self.client = rocketmq.Producer(
            configuration(arguments),
            arguments.get("topics"),
            checker=self.checker,
            tls_enable=arguments.get("tls", False),
        )

    def send(self, arguments: Arguments) -> Answer:
        """Send one after the other, or all at once; a message with the property "outcome" is sent in a transaction."""
        messages = [outgoing(arguments["topic"], fields) for fields in arguments["messages"]]
        if arguments.get("mode", "sync") == "async":
            futures = [attempt(lambda message=message: self.client.send_async(message)) for message in messages]
            return {"results": [self._awaited(future) for future in futures]}
        return {"results": [attempt(lambda message=message: self._send_one(message)) for message in messages]}

    @staticmethod
    def _awaited(future: Any) -> Any:
        failed = isinstance(future, dict)
        return cast("object", future) if failed else attempt(lambda: receipt(future.result(ASYNC_LIMIT_S)))

    def _send_one(self, message: Any) -> Answer:
        outcome = message.properties.get("outcome")
        if outcome is None:
            return receipt(self.client.send(message))
        transaction = self.client.begin_transaction()
        sent = receipt(self.client.send(message, transaction))
        if outcome == "commit":
            transaction.commit()
        elif outcome == "rollback":
            transaction.rollback()
        return sent


def resolution(word: str) -> Any:
    """Return the official value of an outcome."""
    return getattr(protocol.TransactionResolution, OUTCOMES[word])


def configuration(arguments: Arguments) -> Any:
    """Return how a client finds its server and who it says it is."""
    credentials = rocketmq.Credentials(arguments.get("accessKey", ""), arguments.get("secretKey", ""))
    timeout_s = arguments.get("requestTimeoutMs", 3000) // 1000
    return rocketmq.ClientConfiguration(arguments["endpoints"], credentials, request_timeout=timeout_s)


def subscriptions(arguments: Arguments) -> Any:
    """Return topics with their expressions: none, of tags, or {"sql"}."""
    return {topic: expression(wanted) for topic, wanted in arguments["subscriptions"].items()}


def expression(wanted: Any) -> Any:
    """Return the official filter."""
    if isinstance(wanted, dict):
        return rocketmq.FilterExpression(wanted["sql"], protocol.FilterType.SQL)
    return rocketmq.FilterExpression(wanted or "*")


def outgoing(topic: str, fields: Arguments) -> Any:
    """Return a message to send."""
    message = rocketmq.Message()
    message.topic = topic
    message.body = base64.b64decode(fields["body"])
    for name, attribute in (("tag", "tag"), ("messageGroup", "message_group"), ("priority", "priority")):
        if name in fields:
            setattr(message, attribute, fields[name])
    for key in fields.get("keys", ()):
        message.keys = key  # each one is added
    for key, value in fields.get("properties", {}).items():
        message.add_property(key, value)
    if "deliverAtMs" in fields:
        message.delivery_timestamp = -(-fields["deliverAtMs"] // 1000)  # this client knows whole seconds
    return message


def receipt(sent: Any) -> Answer:
    """Return what a send gave, as the drivers' JSON shows it."""
    return {
        "messageId": sent.message_id,
        "transactionId": sent.transaction_id or None,
        "offset": sent.offset,
        "recallHandle": sent.recall_handle or None,
    }


def delivery(message: Any) -> Answer:
    """Return a message as the drivers' JSON shows it."""
    return {
        "topic": message.topic,
        "messageId": message.message_id,
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": message.properties,
        "messageGroup": message.message_group,
        "deliverAtMs": message.delivery_timestamp or None,
        "priority": message.priority or None,
        "bornHost": message.born_host,
        "bornAtMs": message.born_timestamp,
        "attempt": message.delivery_attempt or 0,
        "corrupted": message.corrupted,
        "receivedAt": time.time_ns() // 1_000_000,
    }


def failure(error: BaseException) -> Answer:
    """Return an exception of the client as the drivers' JSON shows it."""
    return {"type": type(error).__name__, "code": getattr(error, "code", None), "message": str(error)}


def attempt(act: Callable[[], Any]) -> Any:
    """Return what a call returns, or the error that it raises."""
    try:
        return act() or {}
    except Exception as error:  # the test hears of whatever the client raises
        return {"error": failure(error)}


class GrpcDriver:
    """The commands."""

    def __init__(self) -> None:
        self._producers: dict[str, Producer] = {}
        self._pushed: dict[str, tuple[Any, Listener]] = {}
        self._held: dict[str, HeldMessages] = {}
        self._writing = threading.Lock()
        self._commands: dict[str, Callable[[Arguments], Answer | None]] = {
            "hello": self._hello,
            "producer.start": self._start_producer,
            "producer.send": lambda arguments: self._producers[arguments["name"]].send(arguments),
            "producer.checked": lambda arguments: self._producers[arguments["name"]].checker.asked.wait(arguments),
            "producer.recall": self._recall,
            "producer.stop": lambda arguments: self._producers.pop(arguments["name"]).client.shutdown(),
            "push.start": self._start_push,
            "push.received": lambda arguments: self._pushed[arguments["name"]][1].deliveries.wait(arguments),
            "push.stop": lambda arguments: self._pushed[arguments["name"]][0].shutdown(),
            "simple.start": self._start_simple,
            "simple.receive": self._receive,
            "simple.ack": self._ack,
            "simple.change": self._change,
            "simple.stop": lambda arguments: self._held.pop(arguments["name"]).consumer.shutdown(),
        }

    def answer(self, line: bytes) -> None:
        """Run a command and print its answer."""
        arguments = json.loads(line)
        try:
            answer = {"ok": self._commands[arguments["do"]](arguments) or {}}
        except Exception as error:  # the test hears of whatever a command raises
            answer = {"error": failure(error)}
        with self._writing:
            sys.stdout.write(json.dumps({"id": arguments["id"], **answer}) + "\n")
            sys.stdout.flush()

    def _hello(self, _arguments: Arguments) -> Answer:
        return {"client": f"python {version('rocketmq-python-client')}", "pid": os.getpid()}

    def _start_producer(self, arguments: Arguments) -> Answer:
        producer = Producer(arguments)
        producer.client.startup()
        self._producers[arguments["name"]] = producer
        return {"clientId": producer.client.client_id}

    def _recall(self, arguments: Arguments) -> Answer:
        recall = self._producers[arguments["name"]].client.recall_message
        return attempt(lambda: {"messageId": recall(arguments["topic"], arguments["handle"])})

    def _start_push(self, arguments: Arguments) -> Answer:
        listener = Listener(arguments)
        consumer = rocketmq.PushConsumer(
            configuration(arguments),
            arguments["group"],
            listener,
            subscriptions(arguments),
            consumption_thread_count=arguments.get("threads", 4),
            tls_enable=arguments.get("tls", False),
        )
        consumer.startup()
        self._pushed[arguments["name"]] = consumer, listener
        return {"clientId": consumer.client_id}

    def _start_simple(self, arguments: Arguments) -> Answer:
        consumer = rocketmq.SimpleConsumer(
            configuration(arguments),
            arguments["group"],
            subscriptions(arguments),
            await_duration=arguments.get("awaitMs", 5000) // 1000,
            tls_enable=arguments.get("tls", False),
        )
        consumer.startup()
        consumer._init_settings_event.wait(ASYNC_LIMIT_S)  # the official proxy fails receives that come before
        self._held[arguments["name"]] = HeldMessages(consumer)
        return {"clientId": consumer.client_id}

    def _receive(self, arguments: Arguments) -> Answer:
        held = self._held[arguments["name"]]
        return {"messages": held.add(held.consumer.receive(arguments["count"], arguments["invisibleMs"] // 1000))}

    def _ack(self, arguments: Arguments) -> Answer:
        held = self._held[arguments["name"]]
        return held.each(arguments["numbers"], held.consumer.ack)

    def _change(self, arguments: Arguments) -> Answer:
        held = self._held[arguments["name"]]
        change = functools.partial(
            held.consumer.change_invisible_duration, invisible_duration=arguments["invisibleMs"] // 1000
        )
        return held.each(arguments["numbers"], change)


def begin_worker() -> None:
    """Let a thread have the client's event loop.

    Where another thread was the first to make a channel, the client fails in one that has no loop; the main thread of a
    program has one by itself.
    """
    asyncio.set_event_loop(connection.RpcClient.get_channel_io_loop())


def main() -> None:
    """Answer until stdin ends."""
    warnings_only = logging.StreamHandler()
    warnings_only.setLevel(logging.WARNING)
    warnings_only.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("rocketmq-python-client").addHandler(warnings_only)
    driver = GrpcDriver()
    connection.RpcClient()  # starts the loop
    workers = ThreadPoolExecutor(MOST_COMMANDS_AT_ONCE, initializer=begin_worker)
    for line in sys.stdin.buffer:
        workers.submit(driver.answer, line)
    os._exit(0)


if __name__ == "__main__":
    main()
