"""Records what the official 5.4.0 broker and name server answer to bad requests: ``vectors/bad-input``.

    .venv/bin/python tests/interop/record_bad_input.py [broker] [namesrv]

Takes about a minute. Needs what the tests with official clients need. The cases are those of ``badinput.samples``
and ``badinput.variations``; a change there is followed by a new recording.
"""

import asyncio
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))

from badinput.asking import BadCaller
from badinput.case import Case, save_cases
from badinput.samples import (
    SETTINGS_OF_BROKER,
    broker_cases,
    nameserver_cases,
    prepare_broker,
    prepare_nameserver,
)
from interop.servers import JavaServer
from raw_calls import open_caller

FOLDER = pathlib.Path(__file__).parent.parent / "vectors" / "bad-input"


async def record_broker(server: JavaServer) -> list[Case]:
    """Return the answers of the broker."""
    async with open_caller(server.broker) as caller:
        await prepare_broker(caller)
        return await BadCaller(server.broker).ask_all(broker_cases())


async def record_nameserver(server: JavaServer) -> list[Case]:
    """Return the answers of the name server."""
    async with open_caller(server.namesrv) as caller:
        await prepare_nameserver(caller)
        return await BadCaller(server.namesrv).ask_all(nameserver_cases())


RECORDERS = {"broker": record_broker, "namesrv": record_nameserver}


def main() -> None:
    """Record the named servers, or both."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or list(RECORDERS):
        with (
            tempfile.TemporaryDirectory() as directory,
            JavaServer(pathlib.Path(directory) / "store", SETTINGS_OF_BROKER) as server,
        ):
            cases = asyncio.run(RECORDERS[name](server))
        save_cases(FOLDER / f"{name}-5.4.0.jsonl.gz", cases)
        silent = sum(case.answer is None for case in cases)
        sys.stdout.write(f"{name}: {len(cases)} requests, {silent} without answer\n")


if __name__ == "__main__":
    main()
