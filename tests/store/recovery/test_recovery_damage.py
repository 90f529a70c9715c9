"""What a start makes of damage, in words and numbers: what it refuses, what it says, and what can be read then."""

import logging
import pathlib

import pytest
from damage import audit, contents, damaged_copy, read_cases, sound_stores, without_paths
from stores import StoreDirectory

from rocketlet.common.errors import ConfigError, StoreError

STARTS = pathlib.Path(__file__).parent / "starts.txt"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, vectors: pathlib.Path) -> dict[str, StoreDirectory]:
    """Give the stores without damage."""
    return sound_stores(vectors, tmp_path_factory.mktemp("sound"))


def told(directory: StoreDirectory, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Start, with ``--repair`` if need be, and stop; return what was said and found, and what an audit says then."""
    caplog.clear()
    refused: list[str] = []
    found = ["it does not start"]
    with caplog.at_level(logging.INFO, "rocketlet"):
        for repairs in (False, True):
            try:
                store = directory.open(repairs=repairs)
            except (ConfigError, StoreError) as error:
                refused.append(f"refused: {error}")
            else:
                found = contents(store)
                break
        directory.close_all()
    said = [f"{record.levelname.lower()}: {record.getMessage()}" for record in caplog.records]
    refused = refused[:1] if len(set(refused)) == 1 else refused
    return [*without_paths([*refused, *said], directory), *found, f"then {audit(directory).lines()[-1]}"]


@pytest.mark.parametrize(
    ("case", "expected"), read_cases(STARTS), ids=lambda value: value if isinstance(value, str) else ""
)
def test_start_after_damage(
    case: str,
    expected: list[str],
    stores: dict[str, StoreDirectory],
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the same whether the log is walked record by record or in blocks."""
    if case.endswith("tail"):
        monkeypatch.setattr("rocketlet.store.recovery.recovery.TAIL_BYTES", 4096)
    assert told(damaged_copy(stores, case, tmp_path / "records"), caplog) == expected
    monkeypatch.setattr("rocketlet.store.recovery.recovery.SMALL_BYTES", 300)
    assert told(damaged_copy(stores, case, tmp_path / "blocks"), caplog) == expected
