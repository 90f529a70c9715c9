"""What ``store check`` tells of damage, word for word: every place, number and message that it names.

``reports.txt`` holds a paragraph for each case: its first line says which store is damaged and how, then comes the
report. The stores are ``filled`` (60 messages in 3 queues), ``batch`` and ``delay`` (made by a Java broker).

    flip PATH POSITION [MASK]    change bits of a byte          swap PATH POSITION POSITION SIZE    exchange stretches
    put PATH POSITION TEXT       overwrite                      copy PATH NEW-PATH                  copy a file
    zero PATH POSITION SIZE      overwrite with zeros           cut PATH SIZE                       keep the begin
    remove PATH                  also a directory               kill                                stop uncleanly

``log/1``, ``queue/2/1`` and ``index/0`` stand for a file by its number, of the queue with that id.
"""

import pathlib
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from damage import audit, flip
from stores import GoldenStore, StoreDirectory

MOST_LINES = 10
REPORTS = pathlib.Path(__file__).parent / "reports.txt"


def read_cases() -> Iterator[tuple[str, list[str]]]:
    """Yield what is done, and what the report has to be."""
    for paragraph in REPORTS.read_text().strip().split("\n\n"):
        case, *lines = paragraph.split("\n")
        yield case, lines


def path_of(root: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path that a short name stands for."""
    match name.split("/"):
        case ["log", number]:
            return sorted((root / "commitlog").iterdir())[int(number)]
        case ["queue", queue_id, number]:
            return sorted((root / "consumequeue" / "T" / queue_id).iterdir())[int(number)]
        case ["index", number]:
            return sorted((root / "index").iterdir())[int(number)]
        case _:
            return root / name


def change(root: pathlib.Path, step: str) -> None:
    """Do one step."""
    verb, *words = step.split()
    path = path_of(root, words[0]) if words else root / "abort"
    match verb, *words[1:]:
        case ["flip", position, *mask]:
            flip(path, int(position), int(mask[0]) if mask else 1)
        case ["put", position, text]:
            overwrite(path, int(position), text.encode())
        case ["zero", position, size]:
            overwrite(path, int(position), bytes(int(size)))
        case ["swap", one, other, size]:
            data = path.read_bytes()
            stretches = [data[int(at) : int(at) + int(size)] for at in (one, other)]
            overwrite(path, int(one), stretches[1])
            overwrite(path, int(other), stretches[0])
        case ["cut", size]:
            path.write_bytes(path.read_bytes()[: int(size)])
        case ["copy", target]:
            (root / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, root / target)
        case ["remove"] if path.is_dir():
            shutil.rmtree(path)
        case ["remove"]:
            path.unlink()
        case _:
            assert verb == "kill", step
            path.touch()


def overwrite(path: pathlib.Path, position: int, data: bytes) -> None:
    """Put bytes at a place of a file, which is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = bytearray(path.read_bytes() if path.exists() else b"")
    content[position : position + len(data)] = data
    path.write_bytes(content)


@pytest.fixture(scope="module")
def sound_stores(tmp_path_factory: pytest.TempPathFactory, vectors: pathlib.Path) -> dict[str, StoreDirectory]:
    """Give the stores without damage, closed."""
    folder = tmp_path_factory.mktemp("sound")
    filled = StoreDirectory(folder / "filled")
    filled.fill(60)
    batch, delay = (GoldenStore.unpack(vectors, name, folder).directory for name in ("batchcrc", "delay-retry"))
    return {"filled": filled, "batch": batch, "delay": delay}


def report_of(store: StoreDirectory, name: str, steps: str, folder: pathlib.Path) -> list[str]:
    """Damage a copy of a store and return what is told, without the names of directories and times of files."""
    twin = StoreDirectory(folder / name)
    shutil.copytree(store.root, twin.root, copy_function=shutil.copyfile)
    twin.config = replace(store.config, root=str(twin.root), log_directories=())
    for step in filter(None, map(str.strip, steps.split(";"))):
        change(twin.root, step)
    numbers = {path.name: f"{number}" for number, path in enumerate(sorted((twin.root / "index").glob("*")))}
    report = audit(twin)
    lines = report.lines()
    for old, new in {f"{twin.root}/": "", str(twin.root): name, **numbers}.items():
        lines = [line.replace(old, new) for line in lines]
    told = f"cut at {report.cut_at}, sound behind {report.sound_behind}, end {report.end}"
    if len(lines) > MOST_LINES:
        lines[4:-4] = ["…"]
    return [*lines, told]


@pytest.mark.parametrize(
    ("case", "expected"), list(read_cases()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_damage_is_told(
    case: str,
    expected: list[str],
    sound_stores: dict[str, StoreDirectory],
    tmp_path: pathlib.Path,
) -> None:
    """An operator reads which files, positions and messages are hit, and how many more there are."""
    name, _, steps = case.partition(": ")
    assert report_of(sound_stores[name], name, steps, tmp_path) == expected
