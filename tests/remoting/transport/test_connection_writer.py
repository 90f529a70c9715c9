"""How frames leave a connection: together, but not too many at a time."""

import asyncio
from collections.abc import Iterable

import pytest
from memory_connection import connect_in_memory

from rocketlet.remoting.transport.connection import FrameWriter, RequestHandlers
from rocketlet.testing import ManualClock

KIB = 1024


class Wire(asyncio.Transport):
    """Keeps the sizes of what is written, call by call: a number for one buffer, a list for several."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int | list[int]] = []
        self.is_over = False
        self.untaken_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep a size."""
        self.writes.append(len(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Keep the sizes."""
        self.writes.append([len(each) for each in list_of_data])

    def is_closing(self) -> bool:
        """Return what the test says."""
        return self.is_over

    def get_write_buffer_size(self) -> int:
        """Return what the test says."""
        return self.untaken_bytes


def opened(complaints: list[str]) -> tuple[FrameWriter, Wire]:
    """Return a writer and where it writes."""
    writer, wire = FrameWriter(lambda: complaints.append("slow")), Wire()
    writer.open(wire)
    return writer, wire


@pytest.mark.parametrize(
    ("frames", "at_once", "in_the_next_turn"),
    [
        ([10], [], [10]),
        ([10, 20, 30], [], [60]),
        ([10] * 15, [], [150]),
        ([10] * 16, [160], []),
        ([10] * 17, [160], [10]),
        ([4 * KIB - 1] * 15, [], [60 * KIB - 15]),
        ([4 * KIB - 1] * 16, [64 * KIB - 16], []),
        ([4 * KIB], [4 * KIB], []),
        ([10, 4 * KIB, 10], [4 * KIB + 10], [10]),
        ([64 * KIB + 1], [64 * KIB + 1], []),
        ([], [], []),
    ],
    ids=[
        "one",
        "three",
        "15",
        "16",
        "17",
        "15 of 4 KiB",
        "16 of 4 KiB",
        "a large one",
        "a large second",
        "huge",
        "none",
    ],
)
async def test_frames_of_a_turn_leave_together(
    frames: list[int], at_once: list[int | list[int]], in_the_next_turn: list[int | list[int]]
) -> None:
    """When there are 16 of them, or a large one, they leave at once, in one piece up to 64 KiB."""
    writer, wire = opened([])
    for size in frames:
        writer.push(bytes(size))
    assert wire.writes == at_once
    await asyncio.sleep(0)
    assert wire.writes == [*at_once, *in_the_next_turn]
    writer.push(b"next")
    await asyncio.sleep(0)
    assert wire.writes == [*at_once, *in_the_next_turn, 4]


async def test_parts_of_a_frame_count_one_by_one() -> None:
    """A frame of several buffers is as large as they are together."""
    writer, wire = opened([])
    writer.push([b"12", b"345"])
    assert (writer.size, writer.unsent_bytes, writer.taken_bytes) == (5, 5, 0)
    writer.push([bytes(2 * KIB), bytes(2 * KIB - 1)])
    assert wire.writes == []
    writer.push([bytes(60 * KIB), bytes(5 * KIB)])
    assert wire.writes == [[2, 3, 2 * KIB, 2 * KIB - 1, 60 * KIB, 5 * KIB]]


async def test_frames_of_a_read_wait_for_its_end() -> None:
    """However many they are; ``flush`` sends them."""
    writer, wire = opened([])
    writer.is_collecting = True
    for _ in range(40):
        writer.push(bytes(KIB))
    await asyncio.sleep(0)
    assert (wire.writes, writer.size) == ([], 40 * KIB)
    writer.is_collecting = False
    writer.flush()
    assert (wire.writes, writer.size) == ([40 * KIB], 0)


async def test_bytes_are_counted_until_the_peer_takes_them() -> None:
    """Those that wait here, and those that the transport could not give away yet."""
    writer, wire = opened([])
    writer.push(bytes(100))
    assert (writer.unsent_bytes, writer.taken_bytes) == (100, 0)
    writer.flush()
    writer.push(bytes(50))
    writer.flush()
    wire.untaken_bytes = 30
    assert (writer.unsent_bytes, writer.taken_bytes) == (30, 120)
    writer.push(bytes(7))
    assert (writer.unsent_bytes, writer.taken_bytes) == (37, 120)


async def test_slow_peer_is_told_of_with_each_write() -> None:
    """While it leaves so much unread that writing is paused."""
    complaints: list[str] = []
    writer, _ = opened(complaints)
    for is_paused, count in ((False, 0), (True, 1), (True, 2), (False, 2)):
        writer.is_paused = is_paused
        writer.push(b"x")
        writer.flush()
        assert len(complaints) == count
    writer.is_paused = True
    writer.flush()  # nothing is written
    assert len(complaints) == 2


async def test_nothing_is_written_when_the_connection_has_ended() -> None:
    """Neither before there is one, nor while it closes, nor afterwards; and nothing is kept."""
    complaints: list[str] = []
    early = FrameWriter(lambda: complaints.append("slow"))
    early.push(b"x")
    early.flush()
    assert (early.size, early.unsent_bytes, early.taken_bytes) == (0, 0, 0)

    writer, wire = opened(complaints)
    writer.is_paused = wire.is_over = True
    writer.push(b"x")
    writer.flush()
    assert (writer.size, writer.taken_bytes) == (0, 0)
    wire.is_over = False
    writer.push(b"x")
    writer.close()
    await asyncio.sleep(0)
    writer.push(b"y")
    writer.flush()
    assert (wire.writes, complaints) == ([1], [])


async def test_connection_moves_while_its_peer_sends_or_takes() -> None:
    """Each read counts, and each byte that is taken; what is only written does not."""
    connection, transport = connect_in_memory(RequestHandlers(), ManualClock())
    assert connection.has_moved()
    assert not connection.has_moved()
    for _ in range(2):
        reads = connection.reads
        connection.data_received(b"\0")
        assert connection.reads == reads + 1
        assert connection.has_moved()
        assert not connection.has_moved()
    connection.push(b"12345")
    connection.writer.flush()
    transport.unsent_bytes = 5
    assert not connection.has_moved()
    transport.unsent_bytes = 4
    assert connection.has_moved()
    assert not connection.has_moved()
