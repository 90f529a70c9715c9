"""The key and certificate of a server's own: made once, kept, private."""

import asyncio
import os
import pathlib
import ssl
import sys

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.remoting.tls.contexts import server_context
from rocketlet.remoting.tls.self_signed import SelfSignedTls
from rocketlet.remoting.tls.tls_settings import TlsConfig


def own_pair(path: str) -> SelfSignedTls:
    """Return a server's side of TLS by a pair of its own."""
    return SelfSignedTls(path, lambda: server_context(TlsConfig(), None))


async def test_pair_is_made_once_and_kept(tmp_path: pathlib.Path) -> None:
    """All who ask at the same time get the same; another start finds it; only its owner may read it."""
    path = tmp_path / "config" / "pair.pem"
    tls = own_pair(str(path))
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(tls.context()) for _ in range(5)]
    contexts = {task.result() for task in asked}
    assert len(contexts) == 1
    assert contexts.pop().minimum_version is ssl.TLSVersion.TLSv1_2
    made = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["pair.pem"]
    await own_pair(str(path)).context()
    assert path.read_bytes() == made


@pytest.mark.parametrize("damage", [b"", b"no PEM at all"])
async def test_damaged_pair_is_made_anew(
    tmp_path: pathlib.Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Also beside what a start has left that was killed while it wrote."""
    path = tmp_path / "pair.pem"
    path.write_bytes(damage)
    (tmp_path / "pair.pem.new").write_bytes(b"half")
    await own_pair(str(path)).context()
    assert b"BEGIN CERTIFICATE" in path.read_bytes()
    assert f"{path} cannot be read, making another certificate" in caplog.text


async def test_place_that_cannot_be_used(tmp_path: pathlib.Path) -> None:
    """It is named, with what the system says."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"TLS needs .*pair\.pem, which cannot be read: Not a directory"):
        await own_pair(str(tmp_path / "file" / "pair.pem")).context()
    (tmp_path / "directory").mkdir()
    with pytest.raises(ConfigError, match=r"TLS needs .*directory, which cannot be read: Is a directory"):
        await own_pair(str(tmp_path / "directory")).context()


async def test_without_the_library(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named; a pair that is there already is used without it."""
    path = tmp_path / "pair.pem"
    await own_pair(str(path)).context()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match="TLS needs the library cryptography: pip install cryptography"):
        await own_pair(str(tmp_path / "other.pem")).context()
    await own_pair(str(path)).context()
