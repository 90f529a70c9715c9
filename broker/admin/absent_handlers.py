"""What a 5.4.0 master with stock settings answers about features that it does not use, and this broker does not have.

354, 355           queues and tables in RocksDB: the comparison never ends; tables are JSON on the disk, and that is
                   what an export comes to
1007, 1008         controller mode: off
2001 to 2004       cold data: limits of groups are kept while the broker runs, and limit nothing
5001               the engine of timers: this broker has the one of files

Upstream: ``AdminBrokerProcessor``. Requests that no handler here or elsewhere takes are refused by name, too
(``remoting/codec/error_replies.py``): leases in RocksDB and static topics.
"""

from collections.abc import Awaitable, Callable

from ...common.codes import ResponseCode
from ...common.java_numbers import parse_int32, parse_int64
from ...common.outcome import Outcome
from ...remoting.bodies.body import encode_body
from ...remoting.bodies.reports import ColdDataLimits, RocksdbCheck
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.codec.setting_changes import read_changes
from ...remoting.headers.admin import ExportedTablesHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from .cleaning import CleaningJob
from .handlers import answer_when_done, answer_when_saved

MOST_COLD_GROUPS = 1_000
_TABLES = frozenset({"topics", "subscriptiongroups", "consumeroffsets"})
_IN_PROGRESS = 2


class OtherStorage:
    """Answers those who look for queues and tables in RocksDB."""

    def __init__(self, cleaning: CleaningJob, save: Callable[[], Awaitable[bool]]) -> None:
        self._cleaning = cleaning
        self._save = save

    @answers(Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS)
    def check(self, _command: Command, _connection: Connection) -> Command:
        """Tell that nothing has been compared yet."""
        return _success(encode_body(RocksdbCheck(check_status=_IN_PROGRESS)))

    @answers(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON)
    def export(self, command: Command, _connection: Connection) -> Command | Outcome[Command]:
        """Save the tables, which are JSON."""
        for name in decode_header(ExportedTablesHeader, command).config_type.split(";"):
            if name and name.lower() not in _TABLES:
                return Command.response(ResponseCode.SYSTEM_ERROR, f"Unknown config type: {name}")

        async def save() -> Command:
            answer = await answer_when_saved(self._save)
            return Command.response(answer.code, answer.remark or "export done.")

        return answer_when_done(self._cleaning, save, "save the tables")


class OtherRoles:
    """Answers as a broker that is not under a controller."""

    @answers(Code.NOTIFY_BROKER_ROLE_CHANGED)
    def pass_over(self, _command: Command, _connection: Connection) -> Command:
        """Take note of what would concern brokers under one."""
        return Command.response(ResponseCode.SUCCESS)

    @answers(Code.GET_BROKER_EPOCH_CACHE)
    def tell_epochs(self, _command: Command, _connection: Connection) -> Command:
        """Tell that there is no controller."""
        return Command.response(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")


class OtherFeatures:
    """Answers about cold data and engines of timers."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    @answers(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG)
    def put_limits(self, command: Command, _connection: Connection) -> Command:
        """Keep the limits of some groups; what is no number is passed over."""
        changes = read_changes(command.body, frozenset())
        if isinstance(changes, Command):
            return changes
        for group, text in changes.items():
            if (limit := parse_int64(text)) is not None:
                if group not in self._limits and len(self._limits) >= MOST_COLD_GROUPS:
                    remark = f"{len(self._limits)} groups have limits of cold data, which is the limit"
                    return Command.response(ResponseCode.SYSTEM_ERROR, remark)
                self._limits[group] = limit
        return Command.response(ResponseCode.SUCCESS)

    @answers(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG)
    def drop_limit(self, command: Command, _connection: Connection) -> Command:
        """Forget the limit of the group that the body names."""
        self._limits.pop(command.body.decode(errors="replace"), None)
        return Command.response(ResponseCode.SUCCESS)

    @answers(Code.GET_COLD_DATA_FLOW_CTR_INFO)
    def tell_limits(self, _command: Command, _connection: Connection) -> Command:
        """Tell the limits of groups; nothing was read against them."""
        return _success(encode_body(ColdDataLimits(config_table=self._limits)))

    @answers(Code.SET_COMMITLOG_READ_MODE)
    def set_read_mode(self, command: Command, _connection: Connection) -> Command:
        """Take a hint for reading the log, which the kernel does here as it likes."""
        if not command.ext:
            return Command.response(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode param error")
        mode = parse_int32(command.ext.get("READ_AHEAD_MODE", ""))
        if mode is None:
            return Command.response(ResponseCode.SYSTEM_ERROR, "set commitlog readahead mode failed")
        if mode not in (0, 1):
            return Command.response(ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error")
        return Command.response(ResponseCode.SUCCESS, f"set commitlog readahead mode success, mode: {mode}")

    @answers(Code.SWITCH_TIMER_ENGINE)
    def switch_timers(self, command: Command, _connection: Connection) -> Command:
        """Stay with the engine of files."""
        if not command.ext:
            return Command.response(ResponseCode.INVALID_PARAMETER, "param error, extFields is null")
        engine = command.ext.get("E_T")
        if engine == "F":
            return Command.response(ResponseCode.SUCCESS)
        if engine == "R":
            remark = "timerUseRocksDB muse be configured true when broker start"  # Java's words
            return Command.response(ResponseCode.INVALID_PARAMETER, remark)
        return Command.response(ResponseCode.INVALID_PARAMETER, "param error")


def _success(body: bytes) -> Command:
    return Command.response(ResponseCode.SUCCESS, body=body)
