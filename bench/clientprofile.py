"""Where the time of our client goes: one row of ``clientload.py`` under cProfile, by part of the client.

    python bench/clientprofile.py "send, 64 in flight"

The profiler makes every call dearer, so the shares count, not the rate. What the event loop and the system do is in the
rows of the standard library and of built-in functions.
"""

import cProfile
import pathlib
import sys
import tempfile
from collections import defaultdict
from types import CodeType

import click
import uvloop

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "support"))

from clientload import find_rows, send_backlog
from interop.servers import RocketletServer

_ROOT = pathlib.Path(__file__).parent.parent
_LEAST_SHARE = 0.01


@click.command()
@click.argument("name", default="send, 64 in flight")
@click.option("--scale", default=1.0, show_default=True, help="How much is sent, as a factor.")
def main(name: str, scale: float) -> None:
    """Profile the row NAME and print the share of each module."""
    rows = {row.name: row for row in find_rows(scale)}
    if name not in rows:
        raise SystemExit(f"no row {name!r}; there are: {'; '.join(rows)}")
    with tempfile.TemporaryDirectory() as directory, RocketletServer(pathlib.Path(directory) / "store", {}) as server:
        uvloop.run(send_backlog(server.namesrv, rows[name].messages))
        profile = cProfile.Profile()
        profile.enable()
        uvloop.run(rows[name].own(server.namesrv, rows[name].messages))
        profile.disable()
    _print_shares(profile)


def _print_shares(profile: cProfile.Profile) -> None:
    shares: defaultdict[str, float] = defaultdict(float)
    for entry in profile.getstats():
        shares[_part_of(entry.code)] += entry.inlinetime
    total = sum(shares.values())
    for part, seconds in sorted(shares.items(), key=lambda item: -item[1]):
        if seconds >= _LEAST_SHARE * total:
            print(f"{seconds / total:>6.1%}  {part}")


def _part_of(code: CodeType | str) -> str:
    if isinstance(code, str):
        return "built-in functions"
    found = pathlib.Path(code.co_filename)
    return str(found.relative_to(_ROOT)) if found.is_relative_to(_ROOT) else "the standard library and the event loop"


if __name__ == "__main__":
    main()
