"""Telling whether a message was sent, and if not, how near the others come.

ExpectedMessage   what a test expects; fields that are left out may be anything
check_sent        raises with the nearest messages, the one that differs least first
"""

import json as json_text
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict

from ...common.message import ReceivedMessage

_MOST_SHOWN: Final = 3
_MOST_CHARACTERS: Final = 200


class ExpectedMessage(TypedDict, total=False):
    """What a message is expected to be.

    ``body`` is compared as bytes, text as UTF-8; ``json`` with what the body says in JSON. ``properties`` and ``keys``
    are those that it must have among others.
    """

    body: bytes | str
    json: Any
    tags: str | None
    keys: Collection[str]
    properties: Mapping[str, str]


def check_sent(topic: str, messages: Sequence[ReceivedMessage], expected: ExpectedMessage, times: int | None) -> None:
    """Raise unless a message is as expected, or exactly ``times`` of them are.

    Raises:
        AssertionError: the text says what differs.
    """
    __tracebackhide__ = True
    differing = [(message, [*_differences(message, expected)]) for message in messages]
    count = sum(not differences for _, differences in differing)
    if count == times or (times is None and count):
        return
    wanted = "a message" if times is None else "1 message" if times == 1 else f"{times} messages"
    lines = [f"{topic!r} should have {wanted} with {_describe(expected)}; {count} of its {len(messages)} are so"]
    others = sorted((each for each in differing if each[1]), key=lambda each: len(each[1]))
    if times is None or count < times:
        lines += [f"  {_name(message)}: {'; '.join(differences)}" for message, differences in others[:_MOST_SHOWN]]
        if len(others) > _MOST_SHOWN:
            lines.append(f"  and {len(others) - _MOST_SHOWN} more that differ")
    raise AssertionError("\n".join(lines))


def _differences(message: ReceivedMessage, expected: ExpectedMessage) -> Iterator[str]:
    if "body" in expected:
        wanted = expected["body"]
        wanted = wanted.encode() if isinstance(wanted, str) else wanted
        if message.body != wanted:
            yield f"body is {_short(message.body)}"
    if "json" in expected:
        try:
            found = json_text.loads(message.body)
        except ValueError:
            yield f"body is no JSON: {_short(message.body)}"
        else:
            if found != expected["json"]:
                yield f"json is {_short(found)}"
    if "tags" in expected and message.tags != expected["tags"]:
        yield f"tags are {message.tags!r}"
    if missing := [key for key in expected.get("keys", ()) if key not in message.keys]:
        yield f"keys are {list(message.keys)}, without {missing}"
    for name, value in expected.get("properties", {}).items():
        if message.properties.get(name) != value:
            yield f"property {name} is {message.properties.get(name)!r}"


def _describe(expected: ExpectedMessage) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in expected.items()) or "anything"


def _name(message: ReceivedMessage) -> str:
    return f"queue {message.queue.queue_id}, offset {message.queue_offset}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"
