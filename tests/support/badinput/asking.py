"""Sends cases over a plain socket and notes what comes back.

A connection is used until it ends; a heartbeat, which it would remember, has one of its own. What a server asks
meanwhile is passed over; what a case leaves unanswered for ``PATIENCE_MS`` is taken for unanswered.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterable
from typing import Any

from badinput.case import Answer, Case, without_addresses

from rocketlet.common.codes import VERSION
from rocketlet.remoting.codec.command import JSON, ROCKETMQ, Command
from rocketlet.remoting.codec.frames import PREFIX, FrameParser, encode_binary_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.event_loop import LoopClock

PATIENCE_MS = 4_000
_REMEMBERED = {RequestCode.HEART_BEAT}
_clock = LoopClock()


class BadCaller:
    """One client at an address, over as many connections as it takes."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._parser = FrameParser()
        self._asked = 0

    async def ask_all(self, cases: Iterable[Case]) -> list[Case]:
        """Return the cases with their answers, in order."""
        try:
            return [await self._ask(case) for case in cases]
        finally:
            await self._hang_up()

    async def _ask(self, case: Case) -> Case:
        self._asked += 1
        if case.code in _REMEMBERED:
            await self._hang_up()
        reader = await self._connect()
        assert self._writer is not None, "made with the reader"
        self._writer.write(encode_case(case, self._asked))
        answered = Case(**{name: getattr(case, name) for name in ("code", "title", "fields", "body", "binary")})
        try:
            async with _clock.timeout(PATIENCE_MS):
                answered.answer = await self._read_answer(reader)
        except (EOFError, ConnectionError):
            answered.closed = True
            await self._hang_up()
        except TimeoutError:
            await self._hang_up()
        if case.code in _REMEMBERED:
            await self._hang_up()
        return answered

    async def _read_answer(self, reader: asyncio.StreamReader) -> Answer:
        while data := await reader.read(1 << 16):
            for command in self._parser.feed(data):
                if command.is_response and command.opaque == self._asked:
                    return Answer(command.code, without_addresses(command.remark))
        raise EOFError

    async def _connect(self) -> asyncio.StreamReader:
        if self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(*self._target)
            self._parser = FrameParser()
        return self._reader

    async def _hang_up(self) -> None:
        self._reader, writer, self._writer = None, self._writer, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def encode_case(case: Case, opaque: int) -> bytes:
    """Return the frame of a case."""
    body = case.body_bytes()
    if case.binary:
        command = Command(
            code=case.code, language="PYTHON", version=VERSION, opaque=opaque, ext_table=case.fields or {}
        )
        kind, header = ROCKETMQ, encode_binary_header(command)
    else:
        kind, header = JSON, json.dumps(_json_header(case, opaque)).encode()
    return PREFIX.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def _json_header(case: Case, opaque: int) -> dict[str, Any]:
    header: dict[str, Any] = {"code": case.code, "flag": 0, "language": "PYTHON", "opaque": opaque, "version": VERSION}
    return header if case.fields is None else {**header, "extFields": case.fields}
