"""Asking producers what has become of a transaction: CHECK_TRANSACTION_STATE(39), one-way (behaviour.md B.11, step 7).

Any producer of the group can tell, as far as the broker is concerned; they are asked in turn. Those that do not take
what they are sent are passed over, three of them at most; if no other is there, one of them is asked all the same. That
nobody is there at all is said once a round, and the check counts.
"""

import logging
from typing import NamedTuple

from ...common.ids import format_offset_id
from ...common.names import HALF_TOPIC
from ...common.properties import PRODUCER_GROUP, REAL_QUEUE_ID, REAL_TOPIC, UNIQ_KEY
from ...common.record import NewRecord, encode_record
from ...remoting.codec.codes import RequestCode
from ...remoting.codec.command import Command
from ...remoting.headers.transaction import CheckTransactionHeader
from ...remoting.transport.connection import Connection
from ...store.consumequeue.appended import Appended
from ..group.members import Members

_TRIES = 3
_MOST_UNSENT_BYTES = 1 << 20
_log = logging.getLogger(__name__)


class Question(NamedTuple):
    """A half message that somebody is to be asked about: the copy that was made for it, and where it is."""

    copy: NewRecord
    place: Appended
    stored_at_ms: int


class CheckBack:
    """Asks the producers of one broker."""

    def __init__(self, members: Members[Connection], broker_name: str) -> None:
        self._members = members
        self._broker_name = broker_name
        self._turn = 0
        self._absent: set[str] = set()

    def begin(self) -> None:
        """Begin a round."""
        self._absent.clear()

    def ask(self, question: Question, store_host: bytes) -> None:
        """Ask a producer of the message's group, if there is one."""
        group = question.copy.properties.get(PRODUCER_GROUP, "")
        producer = self._next_producer(group)
        if producer is not None:
            producer.send_oneway(self._request(question, store_host))
        elif group not in self._absent:
            self._absent.add(group)
            _log.warning(
                "no producer of group %s is connected: transaction %s stays open until one is asked",
                group,
                question.copy.properties.get(UNIQ_KEY),
            )

    def _next_producer(self, group: str) -> Connection | None:
        links = list(self._members.producer_group(group))
        if not links:
            return None
        self._turn += 1
        tried = [links[(self._turn + step) % len(links)] for step in range(min(_TRIES, len(links)))]
        return next((link for link in tried if link.unsent_bytes <= _MOST_UNSENT_BYTES), tried[0])

    def _request(self, question: Question, store_host: bytes) -> Command:
        copy, place = question.copy, question.place
        unique_key = copy.properties.get(UNIQ_KEY)
        header = CheckTransactionHeader(
            topic=HALF_TOPIC,
            half_offset=place.queue_offset,
            log_offset=place.log_offset,
            message_id=unique_key,
            transaction_id=unique_key,
            offset_message_id=format_offset_id(store_host, place.log_offset),
            broker_name=self._broker_name,
        )
        return Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, _body(question, store_host))


def _body(question: Question, store_host: bytes) -> bytes:
    """Return the half message as a record of its own topic and queue."""
    copy, place = question.copy, question.place
    own = NewRecord(
        copy.properties[REAL_TOPIC],
        int(copy.properties[REAL_QUEUE_ID]),
        copy.body,
        copy.property_text,
        copy.properties,
        copy.flag,
        copy.sys_flag,
        copy.born_at_ms,
        copy.born_host,
        copy.reconsume_times,
    )
    return encode_record(own, place.queue_offset, place.log_offset, question.stored_at_ms, store_host)
