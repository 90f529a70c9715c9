"""Taking a delayed message back before it is due (Java's ``recallMessage``).

The handle that the send returned names the broker that keeps the message. Brokers serve this only when they are set
to (``recallMessageEnable``), and only for ``delay_ms`` and ``deliver_at_ms``.
"""

from ...common.errors import DecodeError, ResponseError
from ...common.ids import parse_recall_handle
from ...common.names import DLQ_PREFIX, RETRY_PREFIX
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.message import RecallHeader, RecallReply
from ..session.outgoing import check_topic


def broker_of_handle(topic: str, handle: str) -> str:
    """Return the broker that keeps a delayed message.

    Raises:
        TypeError, ValueError: nothing can be recalled with topic and handle.
    """
    check_topic(topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise ValueError(f"messages of {topic} cannot be recalled")
    if not isinstance(handle, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"recall handle is {type(handle).__name__}, it must be the text that the send returned")
    try:
        return parse_recall_handle(handle).broker_name
    except DecodeError as error:
        raise ValueError(f"{handle!r} is not a recall handle that a send returned") from error


def recall_command(group: str, topic: str, handle: str) -> Command:
    """Return the request to take a message back."""
    header = RecallHeader(topic=topic, recall_handle=handle, producer_group=group)
    return Command.request(RequestCode.RECALL_MESSAGE, header)


def read_recall_answer(answer: Command) -> str:
    """Return the unique key of the message that was taken back.

    Raises:
        ResponseError: the broker did not take it back.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark)
    return decode_header(RecallReply, answer).msg_id
