"""What ``store check`` tells of damage, word for word: every place, number and message that it names."""

import pathlib

import pytest
from damage import audit, damaged_copy, read_cases, sound_stores, without_paths
from stores import StoreDirectory

REPORTS = pathlib.Path(__file__).parent / "reports.txt"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, vectors: pathlib.Path) -> dict[str, StoreDirectory]:
    """Give the stores without damage."""
    return sound_stores(vectors, tmp_path_factory.mktemp("sound"))


def told(directory: StoreDirectory) -> list[str]:
    """Return the report, and where a repair would cut."""
    report = audit(directory)
    end = f"cut at {report.cut_at}, sound behind {report.sound_behind}, end {report.end}"
    return [*without_paths(report.lines(), directory), end]


@pytest.mark.parametrize(
    ("case", "expected"), read_cases(REPORTS), ids=lambda value: value if isinstance(value, str) else ""
)
def test_damage_is_told(
    case: str, expected: list[str], stores: dict[str, StoreDirectory], tmp_path: pathlib.Path
) -> None:
    """An operator reads which files, positions and messages are hit, and how many more there are."""
    assert told(damaged_copy(stores, case, tmp_path)) == expected
