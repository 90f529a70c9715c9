"""Rot at random places of any file: refused by name, or harmless; never a crash."""

import logging
import random
from collections.abc import Callable

import pytest
from stores import StoreDirectory, new_record, read_all

from rocketlet.common.errors import ConfigError, StoreDamagedError


def spoil(data: bytearray, draw: random.Random) -> None:
    """Flip a bit, cut the end off, or overwrite a stretch."""
    at = draw.randrange(len(data))
    stretch = min(len(data) - at, draw.randrange(1, 300))
    match draw.choice(["bit", "end", "zeros", "noise"]):
        case "bit":
            data[at] ^= 1 << draw.randrange(8)
        case "end":
            del data[at:]
        case "zeros":
            data[at : at + stretch] = bytes(stretch)
        case _:
            data[at : at + stretch] = draw.randbytes(stretch)


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index", "checkpoint"])
def test_rot_is_refused_or_harmless(
    directory: StoreDirectory, copy_of: Callable[..., StoreDirectory], folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that follow from the log are made good; rot in the log stops the start, or hits what has no checksum."""
    caplog.set_level(logging.CRITICAL)
    directory.fill(80)
    with directory.open() as store:
        before = read_all(store)
    for seed in range(12):
        draw = random.Random(f"{folder}{seed}")
        twin = copy_of()
        path = draw.choice([path for path in sorted(twin.root.rglob("*")) if path.is_file() and folder in str(path)])
        data = bytearray(path.read_bytes())
        spoil(data, draw)
        path.write_bytes(data)
        if draw.random() < 0.5:
            twin.abort.touch()
        try:
            store = twin.open()
        except (StoreDamagedError, ConfigError):
            continue
        found = read_all(store)
        assert sum(map(len, found.values())) == 80
        assert folder == "commitlog" or found == before
        for number in range(80):
            store.query("T", f"k{number}", 64, 0, 1 << 62)
        store.append(new_record())
        store.commit()
        twin.close_all()
