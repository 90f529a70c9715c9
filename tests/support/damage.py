"""Damage to stores, at chosen and at random places."""

import pathlib
import random

from stores import StoreDirectory

from rocketlet.store.audit.audit_report import AuditReport
from rocketlet.store.audit.store_audit import StoreAudit


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
