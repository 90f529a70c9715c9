"""The adapter of the wire for the members of a broker group, and for who asks how they stand (spec replication.md §8).

60   GET_TIMER_CHECK_POINT         how far timer messages have been delivered: the seven numbers of ``timercheck``
61   GET_TIMER_METRICS             how many of them wait; a master does not count them
402  GET_ALL_MESSAGE_REQUEST_MODE  which groups pull, and which pop
905  NOTIFY_MIN_BROKER_ID_CHANGE   has slaves that may act as master ask who is there
906  EXCHANGE_BROKER_HA_INFO       where the master is; a slave that is told so copies from there
907  GET_BROKER_HA_STATUS          how far slaves have come, or this slave has
908  RESET_MASTER_FLUSH_OFFSET     a number that slaves keep

Upstream: ``AdminBrokerProcessor``, ``DefaultHAService.getRuntimeInfo``. What else slaves ask for administrators may ask
as well (``admin/handlers.py``, ``admin/offset_handlers.py``).
"""

from collections.abc import Callable

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...remoting.bodies.body import encode_body
from ...remoting.bodies.replication import HaClientState, HaConnectionState, HaStatus
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.replication import FlushedOffsetHeader, HaAddressesHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ...store.message_store import MessageStore
from ...store.timer.timer_check import TimerCheck, encode_timer_check
from ..group.groups import RequestModeTable
from .kept_tables import KeptTables
from .log_replication import LogReplication
from .slave_link import SlaveState


class KeptTableHandlers:
    """Answers slaves with what no administrator asks for; ``timer_check`` is ``None`` where timers are off."""

    def __init__(
        self, modes: RequestModeTable, kept: KeptTables, timer_check: Callable[[], TimerCheck | None] | None
    ) -> None:
        self._modes = modes
        self._kept = kept
        self._timer_check = timer_check

    @answers(Code.GET_ALL_MESSAGE_REQUEST_MODE)
    def tell_modes(self, _command: Command, _connection: Connection) -> Command:
        """Tell which groups pull and which pop."""
        return Command.response(ResponseCode.SUCCESS, body=encode_body(self._modes.content()))

    @answers(Code.GET_TIMER_METRICS)
    def tell_counts(self, _command: Command, _connection: Connection) -> Command:
        """Tell how many timer messages wait."""
        if self._timer_check is None:
            return Command.response(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return Command.response(ResponseCode.SUCCESS, body=encode_body(self._kept.timer_counts.content()))

    @answers(Code.GET_TIMER_CHECK_POINT)
    def tell_check(self, _command: Command, _connection: Connection) -> Command:
        """Tell how far timer messages have been delivered."""
        check = None if self._timer_check is None else self._timer_check()
        if check is None:
            return Command.response(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return Command.response(ResponseCode.SUCCESS, body=encode_timer_check(check))


class PeerHandlers:
    """Answers how this broker and the others of its group stand."""

    def __init__(self, replication: LogReplication, store: MessageStore, clock: Clock) -> None:
        self._replication, self._master = replication, replication.master
        self._store = store
        self._clock = clock

    @answers(Code.GET_BROKER_HA_STATUS)
    def tell_status(self, _command: Command, _connection: Connection) -> Command:
        """Tell who copies the log and how far they have come, or how far this copy has."""
        status = self._slave_status() if self._master.is_needed else self._master_status()
        return Command.response(ResponseCode.SUCCESS, body=encode_body(status))

    @answers(Code.EXCHANGE_BROKER_HA_INFO)
    def exchange_addresses(self, command: Command, _connection: Connection) -> Command:
        """Tell a slave where this master is, or hear it of a master."""
        told = decode_header(HaAddressesHeader, command)
        if told.ha_address is not None and self._master.is_needed:
            self._master.learn_ha_address(told.ha_address, told.address)
        if told.ha_address is not None or self._master.is_needed:
            return Command.response(ResponseCode.SUCCESS)
        reply = HaAddressesHeader(**self._replication.place._asdict())
        return Command.response(ResponseCode.SUCCESS, ext=reply)

    @answers(Code.RESET_MASTER_FLUSH_OFFSET)
    def keep_flushed_offset(self, command: Command, _connection: Connection) -> Command:
        """Keep how much of the master's log is taken for flushed; a master has no use for it."""
        if self._master.is_needed:
            header = decode_header(FlushedOffsetHeader, command)
            self._store.set_master_flushed_offset(header.master_flush_offset)
        return Command.response(ResponseCode.SUCCESS)

    @answers(Code.NOTIFY_MIN_BROKER_ID_CHANGE)
    def look_at_members(self, _command: Command, _connection: Connection) -> Command:
        """Have name servers asked who is there, where slaves may act as master; what is told is not read."""
        self._replication.asks_members.set()
        return Command.response(ResponseCode.SUCCESS)

    def _master_status(self) -> HaStatus:
        states = self._replication.server.states()
        return HaStatus(
            ha_connection_info=[_connection_state(state) for state in states],
            in_sync_slave_nums=sum(state.is_in_sync for state in states),
            master_commit_log_max_offset=self._store.log_max_offset,
        )

    def _slave_status(self) -> HaStatus:
        client = self._replication.client
        link = client and client.link
        wall_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        state = HaClientState(
            last_read_timestamp=0 if link is None else wall_ms + link.read_at_ms,
            last_write_timestamp=0 if link is None else wall_ms + link.written_at_ms,
            master_addr=self._master.ha_address or None,
            master_flush_offset=self._store.master_flushed_offset,
            max_offset=self._store.log_max_offset,
            transferred_byte_in_second=0 if link is None else link.bytes_in_second,
        )
        return HaStatus(ha_client_runtime_info=state, master=False)


def _connection_state(state: SlaveState) -> HaConnectionState:
    return HaConnectionState(
        addr=state.peer,
        diff=state.behind_bytes,
        in_sync=state.is_in_sync,
        slave_ack_offset=state.acknowledged,
        transfer_from_where=state.next_offset,
        transferred_byte_in_second=state.bytes_in_second,
    )
