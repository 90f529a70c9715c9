"""A file that a user has named, read from its beginning on: errors say which and why.

Recordings (``cli/traffic/recording.py``) and dumps (``dump_file.py``) are opened by it; it knows nothing of either.
"""

import os
from typing import BinaryIO, Final

from ...common.errors import ConfigError, StoreError


class InputFile:
    """An open file, and how long it was when it was opened.

    Raises:
        ConfigError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path: Final = path
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 # closed by close
            self.size_bytes: Final = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"<InputFile {self.path} of {self.size_bytes} bytes>"

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end of the file.

        Raises:
            StoreError: the disk does not give them.
        """
        try:
            return self._file.read(size)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}") from error

    def tell(self) -> int:
        """Return the byte that is read next."""
        return self._file.tell()

    def skip(self, size: int) -> int:
        """Pass over so many bytes and return the byte that is read next, which may lie behind the end."""
        return self._file.seek(size, os.SEEK_CUR)

    def close(self) -> None:
        """Close it."""
        self._file.close()
