"""The adapter of the wire for transactions: requests 37 and 323 with their answers, and checks (39)."""

import logging
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Protocol

from ...common.codes import ResponseCode
from ...common.errors import HeaderError
from ...common.ids import format_offset_id
from ...common.names import HALF_TOPIC
from ...common.outcome import Outcome
from ...common.properties import PRODUCER_GROUP, REAL_TOPIC, UNIQ_KEY
from ...remoting.codec.command import ONEWAY, Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.message import CheckTransactionHeader, EndTransactionHeader, ResumeCheckHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ..group.members import Members
from ..settings.refusal import Refusal
from .checks import CheckRequest, ProducerLink, asked_record
from .end_transaction import RESUME_FAILED, TRANSACTION_UNAVAILABLE, UNREADABLE, EndTransaction, ResumeCheck

_TRIES = 3
_MOST_UNSENT_BYTES = 1 << 20
_log = logging.getLogger(__name__)


class TransactionHandlers:
    """Answers producers about the ends of their transactions, and administrators about those that were given up."""

    def __init__(self, ends: EndTransaction, resumes: ResumeCheck) -> None:
        self._ends = ends
        self._resumes = resumes

    @answers(Code.END_TRANSACTION)
    def end(self, command: Command, _connection: Connection) -> Outcome[Refusal | None]:
        """Take in what has become of a transaction."""
        header = decode_header(EndTransactionHeader, command)
        outcome = self._ends.end(header, waits=not command.flag & ONEWAY)
        if not outcome.is_dropped:
            outcome.encode = _encode_end
        return outcome

    @answers(Code.RESUME_CHECK_HALF_MESSAGE)
    def resume(self, command: Command, _connection: Connection) -> Outcome[Refusal | None]:
        """Have producers asked once more about a message that was given up."""
        try:
            message_id = decode_header(ResumeCheckHeader, command).message_id
        except HeaderError:
            return Outcome(UNREADABLE, is_settled=True, encode=_encode_resume)
        outcome = self._resumes.resume(message_id)
        outcome.encode = _encode_resume
        return outcome


def _encode_end(_command: Command, outcome: Outcome[Refusal | None]) -> Command:
    """A disk that takes too long counts as success: the message is stored."""
    return _encode(TRANSACTION_UNAVAILABLE if outcome.failure is not None else outcome.answer)


def _encode_resume(_command: Command, outcome: Outcome[Refusal | None]) -> Command:
    return _encode(RESUME_FAILED if outcome.failure is not None else outcome.answer)


def _encode(refusal: Refusal | None) -> Command:
    return Command.response(ResponseCode.SUCCESS) if refusal is None else Command.response(refusal.code, refusal.remark)


class GuestProducers(Protocol):
    """The producers of other protocols; ``Members`` of them is the real one."""

    def producer_group(self, name: str, /) -> Iterable[ProducerLink]:
        """Return those of a group."""
        ...


class TransactionCheckSender:
    """Asks producers what has become of a transaction: 39, CHECK_TRANSACTION_STATE, one-way (behaviour.md B.11).

    Any producer of the group can tell, as far as the broker is concerned; they are asked in turn. Those that do not
    take what they are sent are passed over, three of them at most; if no other is there, one of them is asked all the
    same. That nobody is there at all is said once a round, and the check counts. ``guests`` are asked by their links.

    A question holds the message, and anybody may say that they are of a group: a connection is asked if it
    ``may_be_asked`` about messages of the topic.
    """

    def __init__(
        self,
        members: Members[Connection],
        broker_name: str,
        guests: GuestProducers | None = None,
        may_be_asked: Callable[[Connection, str], bool] | None = None,
    ) -> None:
        self._members = members
        self._may_be_asked = may_be_asked
        self._guests = guests or Members[ProducerLink](lambda: 0)
        self._broker_name = broker_name
        self.asked_count = 0
        """How often producers were asked."""
        self._absent: set[str] = set()

    def begin(self) -> None:
        """Begin a round."""
        self._absent.clear()

    def ask(self, request: CheckRequest, store_host: bytes) -> None:
        """Ask a producer of the message's group, if there is one."""
        properties = request.copy.properties
        group = properties.get(PRODUCER_GROUP, "")
        producer = self._next_producer(group, properties.get(REAL_TOPIC, ""))
        if isinstance(producer, Connection):
            producer.send_oneway(_encode_check(request, store_host, self._broker_name))
        elif producer is not None:
            producer.ask_transaction(request, store_host)
        elif group not in self._absent:
            self._absent.add(group)
            _log.warning(
                "no producer of group %s is connected%s: transaction %s stays open until one is asked",
                group,
                "" if self._may_be_asked is None else " that may send to its topic",
                properties.get(UNIQ_KEY),
            )

    def _next_producer(self, group: str, topic: str) -> Connection | ProducerLink | None:
        links = [*self._members.producer_group(group), *self._guests.producer_group(group)]
        first = (self.asked_count + 1) % max(1, len(links))
        in_turn = chain(links[first:], links[:first])
        tried = list(islice((link for link in in_turn if self._is_entitled(link, topic)), _TRIES))
        if not tried:
            return None
        self.asked_count += 1
        return next((link for link in tried if link.unsent_bytes <= _MOST_UNSENT_BYTES), tried[0])

    def _is_entitled(self, link: Connection | ProducerLink, topic: str) -> bool:
        if isinstance(link, Connection):
            return self._may_be_asked is None or self._may_be_asked(link, topic)
        return link.may_be_asked(topic)


def _encode_check(request: CheckRequest, store_host: bytes, broker_name: str) -> Command:
    place = request.place
    unique_key = request.copy.properties.get(UNIQ_KEY)
    header = CheckTransactionHeader(
        topic=HALF_TOPIC,
        half_offset=place.queue_offset,
        log_offset=place.log_offset,
        message_id=unique_key,
        transaction_id=unique_key,
        offset_message_id=format_offset_id(store_host, place.log_offset),
        broker_name=broker_name,
    )
    return Command.request(Code.CHECK_TRANSACTION_STATE, header, asked_record(request, store_host))
