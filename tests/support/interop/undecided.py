"""Transactions that one broker leaves open and the next one on the same directory has to ask about."""

from interop.clients import PushConsumer, TransactionProducer
from interop.driver import Driver
from interop.servers import Server
from interop.traffic import read_topic

TOPIC = "undecided"
CHECK_SETTINGS = {
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "500",
    "transactionCheckMax": "1000",
    "transactionOpBatchInterval": "100",  # of the Java broker, which loses what it has not written when it stops
}


class Undecided:
    """What is left open and what was decided, over the turns of several brokers."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._left: list[bytes] = []
        self._expected: list[bytes] = []
        self._turns = 0

    def take_turn(self, server: Server) -> None:
        """Let what the broker finds open be committed, see that just this is delivered, and leave others open."""
        self._turns += 1
        about = {"namesrv": server.namesrv, "group": "deciders", "topic": TOPIC if self._expected else None}
        with TransactionProducer(self._driver, **about) as producer:
            assert {message.body for message in producer.checked(len(self._left))} == set(self._left)
            producer.send(TOPIC, b"committed %d" % self._turns, outcome="commit", checked="commit")
            producer.send(TOPIC, b"rolled back %d" % self._turns, outcome="rollback", checked="commit")
            new = [*self._left, b"committed %d" % self._turns]
            self._expected += new
            with PushConsumer(self._driver, namesrv=server.namesrv, group="g", subscriptions={TOPIC: "*"}) as consumer:
                assert consumer.wait_bodies(new) == set(new)
            self._left = [b"left %d-%d" % (self._turns, number) for number in range(3)]
            producer.send(TOPIC, *self._left, outcome="unknown", checked="commit")
        delivered = [message.body for message in read_topic(self._driver, server.namesrv, TOPIC)]
        assert sorted(delivered) == sorted(self._expected)
