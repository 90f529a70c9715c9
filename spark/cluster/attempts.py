"""Doing again what failed and may succeed a little later: a server that does not answer, or has no time."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ...common.clock import Clock
from ...common.errors import RemotingError, ResponseError
from ...remoting.codec.codes import ResponseCode
from ..options.access import Access

_log = logging.getLogger(__name__)
_PASSING: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)

Found = TypeVar("Found")


def may_pass(error: RemotingError | ResponseError) -> bool:
    """Tell whether the same request may succeed a little later."""
    return isinstance(error, RemotingError) or error.code in _PASSING


async def attempt(access: Access, clock: Clock, ask: Callable[[], Awaitable[Found]]) -> Found:
    """Return what ``ask`` does, after as many failures as the access allows.

    Raises:
        RemotingError, ResponseError: The last failure, or one that will not pass.
    """
    for left in range(access.retries, -1, -1):
        try:
            return await ask()
        except (RemotingError, ResponseError) as error:
            if not left or not may_pass(error):
                raise
            _log.warning(
                "request failed, retrying in %d ms, %d retries left: %s", access.retry_interval_ms, left, error
            )
            await clock.sleep(access.retry_interval_ms)
    raise AssertionError("the last attempt returns or raises")
