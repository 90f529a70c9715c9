"""Hosts of records as text, and the message ids that are made of them, for whole columns.

    stored: address (4 or 16 bytes) + port (4)      text: 192.0.2.1:10911, [fd00::1]:10911
    offset id: stored host + log offset (8), as upper-case hex digits

A host is formatted once per distinct value in a block. IPv6 hosts (store.md §2.1) are rare; a column that holds both
kinds is put together from one of each.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...common.ids import decode_host
from ...common.sysflag import BORN_HOST_V6, STORE_HOST_V6
from ...store.commitlog.record_blocks import ADDED_BYTES, BORN_HOST_AT, STORE_HOST_AT, Block, Longs, Mask

_HEX_DIGITS: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)


def born_hosts(block: Block) -> pa.Array:
    """Return the text of the host that each message was born on."""
    return _host_texts(block, "born_host", block.positions + BORN_HOST_AT, BORN_HOST_V6)


def store_hosts(block: Block) -> pa.Array:
    """Return the text of the host that stored each message."""
    return _host_texts(block, "store_host", _store_host_at(block), STORE_HOST_V6)


def offset_ids(block: Block) -> pa.Array:
    """Return the offset id of each record."""
    segment, at = block.segment, _store_host_at(block)
    offsets = _bytes(np.ascontiguousarray(block.heads["log_offset"]).view("V8"))

    def format_rows(rows: slice | Mask, size: int) -> pa.Array:
        hosts = segment.gather(at[rows], f"V{size}")
        return _format_hex(np.concatenate((_bytes(hosts), offsets[rows]), axis=1))

    return _by_kind(block.number("sys_flag") & STORE_HOST_V6 != 0, format_rows)


def _host_texts(block: Block, name: str, at: Longs, v6_flag: int) -> pa.Array:
    if not block.has_v6:
        return _format_hosts(np.ascontiguousarray(block.heads[name]))
    is_v6 = block.number("sys_flag") & v6_flag != 0
    return _by_kind(is_v6, lambda rows, size: _format_hosts(block.segment.gather(at[rows], f"V{size}")))


def _store_host_at(block: Block) -> Longs:
    return block.positions + STORE_HOST_AT + ADDED_BYTES * (block.number("sys_flag") & BORN_HOST_V6 != 0)


def _by_kind(is_v6: Mask, make: Callable[[slice | Mask, int], pa.Array]) -> pa.Array:
    """Make the column of a host of 8 bytes, of 20 bytes, or of both, put into the order of the rows."""
    if not is_v6.any():
        return make(slice(None), 8)
    if is_v6.all():
        return make(slice(None), 20)
    both = pa.concat_arrays([make(~is_v6, 8), make(is_v6, 20)])
    return both.take(pa.array(np.argsort(np.argsort(is_v6, kind="stable"), kind="stable")))


def _format_hosts(hosts: npt.NDArray[np.void]) -> pa.Array:
    kind = pa.binary(hosts.dtype.itemsize)
    coded = pa.Array.from_buffers(kind, len(hosts), [None, pa.py_buffer(hosts)]).dictionary_encode()
    texts = pa.array([_format_host(host) for host in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


@lru_cache(maxsize=65_536)
def _format_host(host: bytes) -> str:
    address, port = decode_host(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _format_hex(rows: npt.NDArray[np.uint8]) -> pa.Array:
    count, size = rows.shape
    digits = _HEX_DIGITS.take(rows)
    ends = np.arange(0, 2 * size * count + 1, 2 * size, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(digits)])


def _bytes(items: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    return items.view(np.uint8).reshape(len(items), items.dtype.itemsize)
