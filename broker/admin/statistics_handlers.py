"""The adapter of the wire for statistics: request 315 (``AdminBrokerProcessor.ViewBrokerStatsData``; D.5)."""

from ...common.codes import ResponseCode
from ...remoting.bodies.body import encode_body
from ...remoting.bodies.reports import BrokerStats, StatsWindow
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.admin import StatisticHeader
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from .named_statistics import NamedStatistics
from .windows import DAY, HOUR, MINUTE, Growth


class StatisticsHandlers:
    """Answers what has been counted in the last minute, hour and day."""

    def __init__(self, statistics: NamedStatistics) -> None:
        self._statistics = statistics

    @answers(Code.VIEW_BROKER_STATS_DATA)
    def tell(self, command: Command, _connection: Connection) -> Command:
        """Tell the windows of one statistic; tools take the error for one that has nothing to tell."""
        header = decode_header(StatisticHeader, command)
        found = self._statistics.find(header.stats_name, header.stats_key)
        if found is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return Command.response(ResponseCode.SYSTEM_ERROR, remark)
        told = BrokerStats(
            stats_minute=_window(found[MINUTE]), stats_hour=_window(found[HOUR]), stats_day=_window(found[DAY])
        )
        return Command.response(ResponseCode.SUCCESS, body=encode_body(told))


def _window(growth: Growth) -> StatsWindow:
    return StatsWindow(sum=growth.total, tps=growth.per_second, avgpt=growth.each_time)
