"""Statuses: how the answers of gRPC say what has become of a request, and what refusals of the broker become there."""

from collections.abc import Iterable, Mapping
from typing import Final

from ...broker.settings.refusal import Refusal
from ...common.codes import ResponseCode
from . import v2
from .enums import Code

_CODES: Final[Mapping[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}


def status(code: Code, text: str = "") -> v2.Status:
    """Return a status; one that says nothing more has the name of its code as text."""
    return v2.Status(code=code, message=text or code.name)


OK: Final = status(Code.OK)
"""What most answers say; who puts it into one puts a copy there."""
_OK_CODE: Final = int(Code.OK)


def refused(refusal: Refusal) -> v2.Status:
    """Return what a client is told that the broker has refused."""
    return status(_CODES.get(refusal.code, Code.INTERNAL_SERVER_ERROR), refusal.remark or "")


def common_status(statuses: Iterable[v2.Status]) -> v2.Status:
    """Return the status of an answer with several entries: theirs if they agree."""
    codes = {each.code for each in statuses}
    if codes == {_OK_CODE}:
        return OK
    return status(Code(codes.pop()) if len(codes) == 1 else Code.MULTIPLE_RESULTS)
