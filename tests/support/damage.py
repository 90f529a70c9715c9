"""Damage to stores, at chosen and at random places, and the words for it in tables of text.

A paragraph of such a table is a case: its first line says which store is damaged and how, then comes what is expected.
The stores are ``filled`` (60 messages in 3 queues), ``batch`` and ``delay`` (made by a Java broker).

    flip PATH POSITION [MASK]    change bits of a byte          swap PATH POSITION POSITION SIZE    exchange stretches
    put PATH POSITION TEXT       overwrite                      copy PATH NEW-PATH                  copy a file
    zero PATH POSITION SIZE      overwrite with zeros           cut PATH SIZE                       keep the begin
    remove PATH                  also a directory               kill                                stop uncleanly
    tail                         have the start walk 4096 bytes only, where it may trust the rest

``log/1``, ``queue/2/1`` and ``index/0`` stand for a file by its number, of the queue with that id.
"""

import pathlib
import random
import shutil
from collections.abc import Mapping

from msgspec.structs import replace
from stores import GoldenStore, StoreDirectory, read_all

from rocketlet.store.audit.audit_report import AuditReport
from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.message_store import MessageStore

MOST_LINES = 10
COUNT = 60
"""How many messages ``filled`` has."""


def audit(directory: StoreDirectory) -> AuditReport:
    """Audit a directory with the sizes of its settings."""
    return StoreAudit(directory.config).run()


def flip(path: pathlib.Path, position: int, mask: int = 0x01) -> None:
    """Change a bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def cut_short(path: pathlib.Path) -> None:
    """Keep half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def record_start(directory: StoreDirectory, number: int) -> int:
    """Return the log offset of a message that ``fill`` wrote, by its number."""
    data = b"".join(path.read_bytes() for path in sorted((directory.root / "commitlog").iterdir()))
    return data.index(b"%06d" % number + b"x") - 88


def spoil(data: bytearray, draw: random.Random) -> str:
    """Flip a bit, cut the end off, or overwrite a stretch; say which."""
    at = draw.randrange(len(data))
    stretch = min(len(data) - at, draw.randrange(1, 300))
    kind = draw.choice(["bit", "end", "zeros", "noise"])
    match kind:
        case "bit":
            data[at] ^= 1 << draw.randrange(8)
        case "end":
            del data[at:]
        case "zeros":
            data[at : at + stretch] = bytes(stretch)
        case _:
            data[at : at + stretch] = draw.randbytes(stretch)
    return f"{kind} at {at}"


def read_cases(table: pathlib.Path) -> list[tuple[str, list[str]]]:
    """Return what is done, and what is expected."""
    paragraphs = [paragraph.split("\n") for paragraph in table.read_text().strip().split("\n\n")]
    return [(case, lines) for case, *lines in paragraphs]


def sound_stores(vectors: pathlib.Path, folder: pathlib.Path) -> dict[str, StoreDirectory]:
    """Make the stores of the tables below a folder, closed."""
    filled = StoreDirectory(folder / "filled")
    filled.fill(COUNT)
    batch, delay = (GoldenStore.unpack(vectors, name, folder).directory for name in ("batchcrc", "delay-retry"))
    return {"filled": filled, "batch": batch, "delay": delay}


def damaged_copy(stores: Mapping[str, StoreDirectory], case: str, folder: pathlib.Path) -> StoreDirectory:
    """Copy a store of a table and do what the case says."""
    name, _, steps = case.partition(": ")
    twin = StoreDirectory(folder / name)
    shutil.copytree(stores[name].root, twin.root, copy_function=shutil.copyfile)
    twin.config = replace(stores[name].config, root=str(twin.root), log_directories=())
    twin.now_ms = stores[name].now_ms
    for step in filter(None, map(str.strip, steps.split(";"))):
        change(twin.root, step)
    return twin


def without_paths(lines: list[str], directory: StoreDirectory) -> list[str]:
    """Return lines without the place of the store and the times that name index files; of many, the ends."""
    numbers = {path.name: f"{number}" for number, path in enumerate(sorted((directory.root / "index").glob("*")))}
    for old, new in {f"{directory.root}/": "", str(directory.root): directory.root.name, **numbers}.items():
        lines = [line.replace(old, new) for line in lines]
    return lines if len(lines) <= MOST_LINES else [*lines[:4], "…", *lines[-4:]]


def contents(store: MessageStore) -> list[str]:
    """Return what a store holds: its bounds and those of its queues, and what of the messages is not there."""
    bodies = {key: {body[:6] for _, body in found} for key, found in read_all(store).items()}
    queues = [
        f"{topic}-{number} {store.min_offset(topic, number)}..{store.max_offset(topic, number)} has {len(found)}"
        for (topic, number), found in bodies.items()
    ]
    lines = [f"log {store.log_min_offset}..{store.log_max_offset}, {', '.join(queues) or 'no queue'}"]
    if ("T", 0) in bodies:
        all_bodies = set[bytes]().union(*bodies.values())
        lost = [number for number in range(COUNT) if b"%06d" % number not in all_bodies]
        without_key = [number for number in range(COUNT) if not store.query("T", f"k{number}", 64, 0, 1 << 62).records]
        lines += [f"lost {lost}"] * bool(lost) + [f"not found by key {without_key}"] * (without_key != lost)
    return lines


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
    if verb == "tail":
        return  # the test sees to it
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
