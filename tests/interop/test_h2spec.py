"""The gRPC port against h2spec: generic, http2 and hpack, the strict cases too."""

import asyncio
import pathlib

import pytest
from grpc_ground import serving_grpc
from interop.toolchain import build_h2spec
from interop.versions import skipped_without


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize("part", ["generic", "http2", "hpack"])
async def test_h2spec_finds_no_failure(part: str, is_tls: bool, tmp_path: pathlib.Path) -> None:
    """Every case of the conformance test passes; none is skipped."""
    with skipped_without("h2spec"):
        program = await asyncio.to_thread(build_h2spec)
    async with serving_grpc(tmp_path / "store") as ground:
        tls = ("--tls", "--insecure") if is_tls else ()
        arguments = ("--strict", "--timeout", "20", "--host", "127.0.0.1", "--port", str(ground.port), *tls, part)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
    text = output.decode()
    last = text.rstrip().splitlines()[-1]
    assert process.returncode == 0, text
    assert " 0 skipped, 0 failed" in last, text
    assert not last.startswith("0 tests"), text
