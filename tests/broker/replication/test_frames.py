"""What goes over the HA port, taken apart."""

import pytest
from replicas import cut, frame, report

from rocketlet.broker.replication.frames import HEAD, MOST_TAKEN_BYTES, REPORT, FrameParser, ReportParser
from rocketlet.common.errors import FrameError

FRAMES = [(6594, b"first"), (6599, b""), (6599, b"x" * 300), (6899, b"")]
STREAM = b"".join(frame(log_offset, body) for log_offset, body in FRAMES)
REPORTS = [0, 6594, (1 << 63) - 1, -1]


def test_sizes() -> None:
    """A report is 8 bytes long, the head of a frame 12."""
    assert (REPORT.size, HEAD.size) == (8, 12)


@pytest.mark.parametrize("place", range(len(STREAM) + 1))
def test_frames_cut_anywhere(place: int) -> None:
    """A stream that is cut at any place gives the same frames."""
    parser = FrameParser(lambda _log_offset: None)
    found = [(one.log_offset, bytes(one.body)) for piece in cut(STREAM, [place]) for one in parser.feed(piece)]
    assert found == FRAMES


def test_frames_byte_by_byte() -> None:
    """A stream that comes in single bytes gives the same frames, each with its last byte."""
    parser = FrameParser(lambda _log_offset: None)
    found = [[bytes(one.body) for one in parser.feed(STREAM[at : at + 1])] for at in range(len(STREAM))]
    assert [body for bodies in found for body in bodies] == [body for _, body in FRAMES]
    assert found[HEAD.size + 4] == [b"first"]


def test_place_of_a_frame_is_told_with_its_head() -> None:
    """Who may refuse it does so before its bytes have come."""
    told: list[int] = []
    parser = FrameParser(told.append)
    data = frame(17, b"body")
    assert list(parser.feed(data[: HEAD.size - 1])) == []
    assert told == []
    assert list(parser.feed(data[HEAD.size - 1 : HEAD.size])) == []
    assert told == [17]


@pytest.mark.parametrize("size", [-1, MOST_TAKEN_BYTES + 1, -(1 << 31), (1 << 31) - 1])
def test_impossible_size(size: int) -> None:
    """A frame is at most what an official slave takes; the error names its size and its place."""
    parser = FrameParser(lambda _log_offset: None)
    with pytest.raises(FrameError, match=f"HA frame at log offset 9 is {size} bytes, limit is {MOST_TAKEN_BYTES}"):
        list(parser.feed(HEAD.pack(9, size)))


def test_impossible_place() -> None:
    """Nothing stands before the log."""
    with pytest.raises(FrameError, match="HA frame at log offset -65536 is 1 bytes"):
        list(FrameParser(lambda _log_offset: None).feed(HEAD.pack(-65_536, 1)))


@pytest.mark.parametrize("place", range(8 * len(REPORTS) + 1))
def test_reports_cut_anywhere(place: int) -> None:
    """A stream that is cut at any place gives the same reports."""
    parser = ReportParser()
    assert [one for piece in cut(report(*REPORTS), [place]) for one in parser.feed(piece)] == REPORTS
