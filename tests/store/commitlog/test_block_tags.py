"""Tags codes of a block: those that the properties of each record have."""

import pathlib
import random
from collections.abc import Sequence

import pytest
from logbuilder import LogBuilder

from rocketlet.common.properties import TAGS, parse_properties, tags_code
from rocketlet.store.commitlog.block_tags import TagCodes, exact_codes, guess_codes
from rocketlet.store.commitlog.record_blocks import Block, BlockScan, ScanLimits, SegmentBytes

TAG = b"TAGS\x01"
END = b"\x02"


def block_of(folder: pathlib.Path, texts: Sequence[bytes], file_bytes: int = 1 << 20) -> Block:
    """Return one block of records with these properties, which are their last bytes, and a blank behind them."""
    log = LogBuilder(folder, file_bytes)
    for text in texts:
        log.add(b"", topic="T", properties=text)
    log.roll()
    log.save()
    path = log.files()[0]
    segment = SegmentBytes(str(path), 0, memoryview(path.read_bytes()))
    (block,) = BlockScan(segment, 0, segment.size, ScanLimits())
    assert len(block) == len(texts)
    return block


def expected_codes(texts: Sequence[bytes]) -> list[int]:
    """Return what a parser of properties says."""
    return [tags_code(parse_properties(text).get(TAGS)) for text in texts]


def check_codes(codes: TagCodes, texts: Sequence[bytes]) -> None:
    """Check that every row is plain and has the code of its tag."""
    assert codes.is_plain.tolist() == [True] * len(texts)
    assert codes.values.tolist() == expected_codes(texts)


def tagged(value: bytes, before: bytes = b"", behind: bytes = b"") -> bytes:
    """Return properties with a tag between others."""
    return before + TAG + value + END + behind


SHORT = [b"a", b"bc", b"sevenby", b"d", b"\xc3\xa4", b"f"]
LONG = [bytes(97 + (seed + step) % 26 for step in range(size)) for seed, size in enumerate(range(1, 48))]
V = [b"v" * number for number in range(40)]
TEXTS = {
    "none": [b"K\x01%d\x02" % number for number in range(40)],
    "same": [tagged(b"tag", b"K\x01%d\x02" % (10 + number)) for number in range(40)],
    "same at a distance from the start": [tagged(b"tag", b"K\x01w\x02", b"K\x01" + v + END) for v in V],
    "same at a distance from the end": [tagged(b"tag", b"K\x01" + v + END, b"L\x01w\x02") for v in V],
    "two distances": [tagged(b"tag", b"K\x01" + V[n % 2] + END, b"L\x01" + V[n % 3] + END) for n in range(60)],
    "first": [tagged(b"tag", b"", b"K\x01" + b"v" * (number % 5) + END) for number in range(40)],
    "few": [tagged(SHORT[number % 6]) for number in range(120)],
    "many": [tagged(b"t%d" % number, b"K\x01v\x02") for number in range(60)],
    "long": [tagged(value, b"K\x01v\x02") for value in LONG],
    "long at the end": [b"K\x01v\x02" + TAG + value for value in LONG],
    "long, with more behind": [tagged(value, b"", b"K\x01\x7f\x02") for value in LONG],
    "no end mark": [TAG + SHORT[number % 6] for number in range(60)],
    "ends of both kinds": [TAG + b"ab" + END * (number % 2) for number in range(60)],
    "one is the start of another": [tagged(b"abcdefghij"[: number % 10 + 1]) for number in range(100)],
    "not ASCII": [tagged("äöüß€𝄞"[number % 6].encode() * (number % 9 + 1)) for number in range(60)],
    "not UTF-8": [tagged(b"\xff" * (number % 9 + 1) + b"a") for number in range(60)],
    "one byte of no character": [tagged(value + b"\xff" + b"behind") for value in V],
    "high byte behind the tag": [tagged(b"t%d" % number, b"", b"K\x01\xc3\xa4\x02") for number in range(40)],
    "some without": [tagged(b"tag", b"K\x01v\x02"), b"K\x01v\x02LAGS\x01tag\x02", b"K\x01v\x02"] * 20,
    "fewer than are guessed at": [tagged(b"tag%d" % (number % 2)) for number in range(5)],
    "few with others before": [tagged(b"tag", b"K\x01v\x02")] * 5,
    "one": [tagged(b"tag")],
    "nothing": [b""],
    "nothing in any": [b""] * 40,
    "far apart": [tagged(b"tag", b"K\x01" + b"v" * 5_000 + END) for _ in range(20)],
}  # fmt: skip


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
def test_codes_of_a_block_are_those_of_its_records(tmp_path: pathlib.Path, texts: Sequence[bytes]) -> None:
    """Wherever the tags stand, however long and however many they are; no row needs a parser."""
    block = block_of(tmp_path, texts)
    check_codes(exact_codes(block), texts)
    check_codes(guess_codes(block), texts)


@pytest.mark.parametrize(
    "odd",
    [
        tagged(b""),
        TAG,
        tagged(b"a") + tagged(b""),
        tagged(b"tag", b"X"),
        tagged(b"tag", b"K\x01"),
        TAG + tagged(b"a") + b"X" + tagged(b"b"),
    ],
)
@pytest.mark.parametrize("count", [1, 40])
def test_tags_that_a_parser_has_to_judge_are_not_plain(tmp_path: pathlib.Path, odd: bytes, count: int) -> None:
    """An empty tag is none, and an earlier one may count; TAGS in another name or value is no tag."""
    texts = [*[tagged(b"tag")] * count, odd, *[tagged(b"tag")] * count]
    codes = exact_codes(block_of(tmp_path, texts))
    assert codes.is_plain.tolist() == [True] * count + [False] + [True] * count
    assert codes.values.tolist()[:count] == expected_codes(texts)[:count]


def test_last_of_two_tags_counts(tmp_path: pathlib.Path) -> None:
    """As Java takes it."""
    texts = [tagged(b"a") + tagged(b"%d" % (number % 7)) for number in range(40)]
    check_codes(exact_codes(block_of(tmp_path, texts)), texts)


CONTROL = [b"a\x03b", b"a\x04b", b"\x00a", b"a\x05\x06b", b"ab\x03", b"a\x01b", b"sevenb\x03\x04nine"]


def test_other_control_characters_end_no_tag(tmp_path: pathlib.Path) -> None:
    """Only the mark between properties does."""
    texts = [tagged(CONTROL[number % 7] + b"%d" % number, b"", b"K\x01v\x02") for number in range(80)]
    block = block_of(tmp_path, texts)
    check_codes(exact_codes(block), texts)
    check_codes(guess_codes(block), texts)


def test_tag_ends_with_its_record(tmp_path: pathlib.Path) -> None:
    """The length of the next record holds a byte that is an end mark elsewhere."""
    texts = [b"K\x01" + b"v" * (450 + number) + END + TAG + (b"ab", b"abc", b"d")[number % 3] for number in range(60)]
    block = block_of(tmp_path, texts)
    assert all(0x200 <= size < 0x300 for size in block.number("size").tolist())
    check_codes(exact_codes(block), texts)
    check_codes(guess_codes(block), texts)


def test_name_of_a_tag_ends_with_its_record(tmp_path: pathlib.Path) -> None:
    """Though the length of a large blank behind it begins with the byte that ends names."""
    texts = [b"K\x01v\x02" + TAG + b"t"] * 20 + [b"K\x01v\x02" + TAG[:-1]]
    block = block_of(tmp_path, texts, 17 << 20)
    assert bytes(block.segment.view[int(block.properties_at[-1]) :][:9]) == texts[-1] + b"\x01"
    check_codes(exact_codes(block), texts)
    check_codes(guess_codes(block), texts)


@pytest.mark.parametrize("from_start", [True, False])
def test_tag_of_another_record_is_not_guessed(tmp_path: pathlib.Path, from_start: bool) -> None:
    """Where the first record has its tag, records without one have that of their neighbour."""
    plain, with_tag = b"K\x01vwxy\x02L\x01vwx\x02", tagged(b"tag", b"K\x01v\x02")
    assert len(plain) == len(with_tag)
    size = 91 + len(b"T") + len(plain)
    filler = b"K\x01" + b"v" * (size - 3) + END
    place = with_tag.index(TAG)
    first = filler + with_tag if from_start else with_tag[:place] + TAG + b"tag\x02" + filler[: size - 7] + END
    if not from_start:  # as far before its end as the tag of the record before is before the end of a plain one
        behind = len(plain) - place + size
        first = b"K\x01vv\x02" + TAG + b"tag\x02M\x01" + b"m" * (behind - len(TAG) - 7) + END
        assert len(first) - first.index(TAG) == behind
    else:
        assert first.index(TAG) == size + place
    texts = [first, *[with_tag, plain] * 30, with_tag]
    block = block_of(tmp_path, texts)
    assert set(block.number("size").tolist()[1:]) == {size}
    check_codes(guess_codes(block), texts)


def test_what_only_looks_like_a_tag_is_not_guessed(tmp_path: pathlib.Path) -> None:
    """The tag behind it counts."""
    texts = [tagged(b"tag", b"K\x01v\x02")] * 30 + [b"K\x01v\x03" + TAG + b"q\x02" + tagged(b"other")] * 3
    check_codes(guess_codes(block_of(tmp_path, texts)), texts)


@pytest.mark.parametrize("seed", range(12))
def test_mixed_tags_are_read_right(tmp_path: pathlib.Path, seed: int) -> None:
    """Records of several producers in one block: every plain row has the code that the parser finds."""
    draw = random.Random(seed)
    values = [
        bytes(draw.choice(b"abAB09 -_") for _ in range(draw.randrange(1, 36))) for _ in range(draw.randrange(1, 30))
    ]
    others = [
        b"",
        b"K\x01v\x02",
        b"KEYS\x01%s\x02" % (b"k" * draw.randrange(20)),
        b"ETAGS\x01x\x02",
        b"\xc3\xa4\x01b\x02",
    ]
    texts = [
        draw.choice(others) + (tagged(draw.choice(values)) if draw.random() < 0.9 else b"") + draw.choice(others[:3])
        for _ in range(300)
    ]
    block, expected = block_of(tmp_path, texts), expected_codes(texts)
    for codes in (exact_codes(block), guess_codes(block)):
        found = zip(codes.is_plain.tolist(), codes.values.tolist(), expected, texts, strict=True)
        assert [text for is_plain, code, wanted, text in found if is_plain and code != wanted] == []
        assert all(is_plain or b"ETAGS" in text for is_plain, text in zip(codes.is_plain.tolist(), texts, strict=True))
