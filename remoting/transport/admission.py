"""Which connections a process has room for.

A process has so many descriptors, for files and for connections. A store without descriptors cannot flush, so the
uppermost are kept for files: the system hands out the lowest free number, hence a connection with a high one says that
the others are taken, by whomever.
"""

import resource

FILE_DESCRIPTORS = 6_000
"""How many are kept for files; of a small limit, half. A store uses 4,608 at most (``store/store_parts.py``)."""


def first_kept_descriptor() -> int | None:
    """Return the lowest number that no connection may have; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft - min(soft // 2, FILE_DESCRIPTORS)
