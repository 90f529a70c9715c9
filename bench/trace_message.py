"""Count what one message passes on its way from a producer to a listener (`python bench/trace_message.py`).

Its pull is held by the broker, as one is that waits for messages.

    calls 284, functions 189, files 67, changes of part 81      of the package alone, in the thread of the loop
      remoting: calls 111, functions 49, files 14
    modules 376, functions 4025, of three lines or fewer 37 %

A module is a file with code; an `__init__.py` without code is none. The length of a function is that of its `def` and
its body, without decorators and docstring. The first messages are sent before, so that routes, connections and caches
are as they are in a broker that has run for a while.
"""

import ast
import asyncio
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import click

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.client import Message, Producer, PushConsumer, ReceivedMessage
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.transport.event_loop import LoopClock

ROOT = Path(__file__).parent.parent
_SHORT_LINES = 3
_FIRST_MESSAGES = 30
_ANSWERED_MS = 20  # after the listener: what the broker is told of the message


class Call(NamedTuple):
    """A call of a function of the package; the file is named from the root on."""

    file: str
    function: str

    @property
    def part(self) -> str:
        """The part of the package."""
        return self.file.partition("/")[0]


class PackageSize(NamedTuple):
    """How many modules and functions the package has, and how many functions are short."""

    modules: int
    functions: int
    short_functions: int


async def trace_message() -> list[Call]:
    """Return the calls that one message takes in a name server, a broker, a producer and a consumer of this process."""
    clock = LoopClock()
    local = {"listenPort": "0", "bindAddress": "127.0.0.1"}
    with tempfile.TemporaryDirectory() as store:
        async with NameServer(NameServerConfig.from_java(local), clock) as names:
            settings = BrokerConfig.from_java({**local, "storePathRootDir": store, "namesrvAddr": names.address})
            async with Broker(settings, clock), Producer("trace", names.address) as producer:
                return await _send_traced(producer, PushConsumer("trace", names.address), clock)


async def _send_traced(producer: Producer, consumer: PushConsumer, clock: LoopClock) -> list[Call]:
    seen: set[bytes] = set()
    arrived = asyncio.Event()
    awaited = _FIRST_MESSAGES

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        seen.update(message.body for message in messages if message.body != b"topic")
        if len(seen) == awaited:
            arrived.set()

    calls: list[Call] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in parts:
            calls.append(Call(str(path.relative_to(ROOT)), frame.f_code.co_qualname))

    parts = {folder.relative_to(ROOT).parts[0] for folder in _folders() if folder != ROOT}
    consumer.subscribe("trace", "*", listener)
    await producer.send(Message("trace", b"topic"))  # makes it
    async with consumer:
        for number in range(_FIRST_MESSAGES):
            await producer.send(Message("trace", b"%d" % number))
        await arrived.wait()
        arrived.clear()
        awaited += 1
        await clock.sleep(_ANSWERED_MS)  # until the next pull is held
        sys.setprofile(note)
        try:
            await producer.send(Message("trace", b"hello", tags="A", keys=["k"]))
            await arrived.wait()
            await clock.sleep(_ANSWERED_MS)
        finally:
            sys.setprofile(None)
    return calls


def measure_package() -> PackageSize:
    """Return the size of the package, read from its source."""
    modules = functions = short_functions = 0
    for path in (path for folder in _folders() for path in folder.glob("*.py")):
        tree = ast.parse(path.read_text())
        if path.name == "__init__.py" and len(tree.body) <= 1:
            continue
        modules += 1
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                short_functions += _lines_of(node) <= _SHORT_LINES
    return PackageSize(modules, functions, short_functions)


def _folders() -> list[Path]:
    packages: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    return [ROOT.joinpath(*name.split(".")[1:]) for name in packages]


def _lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None, "it was parsed from source"
    first = node.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring_lines = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return node.end_lineno - node.lineno + 1 - docstring_lines


def describe_calls(calls: Sequence[Call]) -> list[str]:
    """Return a line for all calls, and one for those of each part."""
    changes = sum(one.part != other.part for one, other in pairwise(calls))
    lines = [f"{_count(calls)}, changes of part {changes}"]
    for part, _ in Counter(call.part for call in calls).most_common():
        lines.append(f"  {part}: {_count([call for call in calls if call.part == part])}")
    return lines


def _count(calls: Sequence[Call]) -> str:
    return f"calls {len(calls)}, functions {len(set(calls))}, files {len({call.file for call in calls})}"


@click.command()
@click.option("--calls", "lists_calls", is_flag=True, help="Print each call, in order.")
def main(*, lists_calls: bool) -> None:
    """Print how many calls, functions and files a message passes, and how large the package is."""
    calls = asyncio.run(trace_message())
    print("\n".join(describe_calls(calls)))
    size = measure_package()
    share = 100 * size.short_functions / size.functions
    print(f"modules {size.modules}, functions {size.functions}, of three lines or fewer {share:.0f} %")
    if lists_calls:
        print("\n".join(f"{call.file}: {call.function}" for call in calls))


if __name__ == "__main__":
    main()
