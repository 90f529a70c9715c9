"""A real file system of a few megabytes: a tmpfs in a mount namespace, and a process in it that works on it."""

import faulthandler
import inspect
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

_MOUNT = 'mount -t tmpfs -o size="$1" small "$2" && echo mounted && shift 2 && exec "$@"'
_LIMIT_S = 100


class SmallDisk:
    """A directory on such a file system, and a file in it that takes room away."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def take_room(self, size: int) -> None:
        """Fill up so many bytes more."""
        with self._ballast.open("ab") as file:
            file.write(bytes(size))

    def give_room(self) -> None:
        """Give back what was taken."""
        self._ballast.unlink()


def run_on_small_disk(folder: pathlib.Path, size: int, work: Callable[..., None], *arguments: int) -> None:
    """Call a module's function with a disk of that size, mounted over a directory, and with the arguments.

    The call is made in a process of its own; an error there fails the test. Where mounting is not permitted, the test
    is skipped.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("platform: there is no unshare to mount a small disk with")
    folder.mkdir()
    call = [sys.executable, __file__, str(folder), inspect.getfile(work), work.__name__, *map(str, arguments)]
    command = [unshare, "-rm", "sh", "-c", _MOUNT, "sh", str(size), str(folder), *call]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=_LIMIT_S)
    if not run.stdout.startswith("mounted\n"):
        pytest.skip(f"platform: a small disk cannot be mounted: {run.stderr.strip()}")
    if run.returncode:
        pytest.fail(f"{work.__name__} on a disk of {size} bytes: {run.stderr}")


def _main(folder: str, file: str, name: str, *arguments: str) -> None:
    faulthandler.enable()  # a map of a file without room ends in a signal
    work = runpy.run_path(file)[name]
    work(SmallDisk(pathlib.Path(folder)), *(int(word) for word in arguments))


if __name__ == "__main__":
    _main(*sys.argv[1:])
