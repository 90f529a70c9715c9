"""With which filter a pull is answered, and whether a client may start with one (spec behaviour.md B.4.1, B.6.3).

Rules
    1. A pull that brings its own subscription is filtered by it; without the flag by the group's subscription, and by
       its registered property filter, which must be there (27) and not be older than the request (28).
    2. Filters other than tags need ``enablePropertyFilter``; that is looked at last.
    3. With ``filterSupportRetry`` such a filter of a retry topic is the one that the group has registered for the topic
       where the message comes from (``ExpressionForRetryMessageFilter``).
"""

from collections.abc import Mapping

from ...common.names import RETRY_PREFIX
from ...common.properties import RETRY_TOPIC
from ...common.sql_filter import SqlLimitError, SqlSyntaxError
from ...common.subscription import SQL92_TYPE, TAG_TYPE, Subscription, parse_tag_expression
from ...remoting.bodies.body import decode_body_if_any
from ...remoting.bodies.client import CheckClientBody, CheckedSubscription
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command
from ...remoting.headers.pull import PULL_CLASS_FILTER, PullHeader
from ...remoting.transport.connection import Connection
from ..settings.config import BrokerConfig
from ..settings.refusal import Refusal
from .filters import TAKES_ALL, PullFilter, compile_filter, property_filter, sql_filter, tag_filter
from .filtertable import FilterTable

_TAG_TYPES = (None, "", TAG_TYPE)
_NO_DATA = "The broker's consumer filter data is not exist!Your expression may be wrong!"


class FilterGate:
    """Finds filters."""

    def __init__(self, config: BrokerConfig, table: FilterTable) -> None:
        self._takes_properties = config.takes_property_filters
        self._filters_retries = config.filters_retries
        self._table = table

    def check_client(self, command: Command, _connection: Connection) -> Command:
        """Answer CHECK_CLIENT_CONFIG(46): whether the subscription of a client that starts can be served."""
        wanted = self._asked_for(command.body)
        if wanted is None or wanted.expression_type in _TAG_TYPES:
            return Command.response(ResponseCode.SUCCESS)
        if not self._takes_properties:
            refusal = _unsupported(wanted.expression_type)
            return Command.response(refusal.code, refusal.remark)
        if wanted.expression_type != SQL92_TYPE:
            remark = f"{wanted.expression_type} is no type of expression, there are {TAG_TYPE} and {SQL92_TYPE}"
            return Command.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        compiled = compile_filter(wanted.sub_string)
        if isinstance(compiled, SqlSyntaxError):
            return Command.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(compiled))
        return Command.response(ResponseCode.SUCCESS)

    def _asked_for(self, body: bytes) -> CheckedSubscription | None:
        asked = decode_body_if_any(CheckClientBody, body)
        return asked.subscription_data if asked else None

    def own_filter(self, header: PullHeader) -> PullFilter | Refusal:
        """Return the filter that stands in the request."""
        if header.expression_type not in _TAG_TYPES:
            if not header.subscription:
                return _unparsable()
            return self._filter_properties(header, header.expression_type or SQL92_TYPE, header.subscription)
        if header.sys_flag & PULL_CLASS_FILTER:
            return TAKES_ALL
        try:
            return tag_filter(parse_tag_expression(header.topic, header.subscription))
        except ValueError:
            return _unparsable()

    def group_filter(self, header: PullHeader, wanted: Subscription) -> PullFilter | Refusal:
        """Return the filter of the group, whose subscription is given."""
        if wanted.expression_type in _TAG_TYPES:
            return tag_filter(wanted)
        registered = self._table.find(header.topic, header.consumer_group)
        if registered is None:
            return Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, _NO_DATA)
        if registered.client_version < header.sub_version:
            return Refusal(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        found = self._filter_properties(header, wanted.expression_type, registered.expression)
        return TAKES_ALL if wanted.has_class_filter and isinstance(found, PullFilter) else found

    def _filter_properties(self, header: PullHeader, expression_type: str, expression: str) -> PullFilter | Refusal:
        if not self._takes_properties:
            return _unsupported(expression_type)
        if self._filters_retries and header.topic.startswith(RETRY_PREFIX):
            return property_filter(_OfOrigin(header.topic.removeprefix(RETRY_PREFIX), self._table))
        if expression_type != SQL92_TYPE:
            return TAKES_ALL
        compiled = compile_filter(expression)
        if isinstance(compiled, SqlLimitError):
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(compiled))
        return sql_filter(expression)


class _OfOrigin:
    """Looks at a message with the group's filter for the topic where it failed; without one it is accepted."""

    __slots__ = ("_group", "_table")

    def __init__(self, group: str, table: FilterTable) -> None:
        self._group = group
        self._table = table

    def __call__(self, properties: Mapping[str, str]) -> bool:
        origin = properties.get(RETRY_TOPIC)
        registered = self._table.find(origin, self._group) if origin else None
        compiled = compile_filter(registered.expression) if registered is not None else None
        return compiled is None or isinstance(compiled, SqlSyntaxError) or compiled.matches(properties)


def _unsupported(expression_type: str) -> Refusal:
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def _unparsable() -> Refusal:
    return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
