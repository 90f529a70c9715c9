"""Asks our servers what was recorded."""

import pathlib
from collections.abc import Collection, Iterable

from badinput.asking import BadCaller
from badinput.case import Case, load_cases
from badinput.comparing import Deviation, find_differences
from raw_calls import Caller

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import NOT_BUILT, RequestCode


async def handled_codes(caller: Caller) -> set[int]:
    """Return the codes that a server does not answer 3; the others are answered with their number."""
    handled: set[int] = set()
    for code in RequestCode:
        answer = await caller.ask(code)
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            handled.add(code)
        else:
            assert answer.remark == f" request type {int(code)} not supported" + f" ({code.name})" * (code in NOT_BUILT)
    return handled


def load_recording(vectors: pathlib.Path, server: str) -> list[Case]:
    """Return the requests to a server, with the official answers."""
    return load_cases(vectors / "bad-input" / f"{server}-5.4.0.jsonl.gz")


async def replay(
    address: str, recorded: Iterable[Case], handled: Collection[int], deviations: Iterable[Deviation]
) -> list[str]:
    """Ask a server all that it handles; return what is wrong with its answers."""
    java = [case for case in recorded if case.code in handled]
    return find_differences(java, await BadCaller(address).ask_all(java), deviations)
