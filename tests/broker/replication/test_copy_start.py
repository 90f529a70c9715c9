"""Whether a slave's log can go on from its master's, and where an empty one begins."""

import pytest
from replicas import StatedMaster, replication_settings

from rocketlet.broker.replication.copy_start import CopyStart
from rocketlet.broker.replication.known_master import KnownMaster
from rocketlet.common.errors import RocketletError

FILE = 1_000
MASTER = "10.0.0.1:10911"
ENDS = "where the last one is here: this log ends at 720, the master's at 5000"


class EndedLog:
    """A log that ends somewhere, with one record at 700."""

    def __init__(self, log_max_offset: int, record: bytes | None = None) -> None:
        self.log_max_offset = log_max_offset
        self._record = record

    def last_copied_record(self) -> tuple[int, bytes] | None:
        """Return it."""
        return None if self._record is None else (700, self._record)


def make(log: EndedLog, address: str | None = MASTER, **given: str) -> CopyStart:
    """Return what decides for a slave that knows its master."""
    config = replication_settings(brokerRole="SLAVE", brokerId="1", **given).config.replication
    master = KnownMaster(config)
    master.tell("a", address, "10.0.0.1:10912")
    return CopyStart(log, master, config, FILE)


async def test_same_record_goes_on() -> None:
    """The master has what this log ends with, so what follows there follows here."""
    master = StatedMaster({700: b"last"}, (0, 5_000))
    assert await make(EndedLog(720, b"last")).find(master.connect) == 720
    assert master.asked == [MASTER]


@pytest.mark.feature("R21")
@pytest.mark.parametrize(
    ("records", "bounds", "why"),
    [
        ({}, (0, 650), "this log ends at 720, ahead of the master's, which ends at 650"),
        ({700: b"short"}, (0, 710), "this log ends at 720, ahead of the master's, which ends at 710"),
        (
            {700: b"other"},
            (0, 5_000),
            f"the master has another record at log offset 700, {ENDS}",
        ),
        (
            {},
            (0, 5_000),
            f"the master has no record at log offset 700, {ENDS}",
        ),
        ({700: b"other"}, (1_000, 5_000), "the master has another record at log offset 700"),
    ],
)
async def test_other_records_are_not_mixed(records: dict[int, bytes], bounds: tuple[int, int], why: str) -> None:
    """A master that has lost records, or written others, is not copied; both ends are named."""
    with pytest.raises(RocketletError) as refused:
        await make(EndedLog(720, b"last")).find(StatedMaster(records, bounds).connect)
    assert str(refused.value).startswith(why)


async def test_what_cannot_be_compared_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """The master has deleted that record, there is none yet, or nobody has said where to ask, which is said once."""
    log = EndedLog(1_000, b"last")
    assert await make(log).find(StatedMaster({}, (1_000, 5_000)).connect) == 1_000
    assert await make(EndedLog(30)).find(StatedMaster(failure="not asked").connect) == 30
    blind = make(log, None)
    for _ in range(2):
        assert await blind.find(StatedMaster(failure="not asked").connect) == 1_000
    [said] = caplog.messages
    assert said.startswith("copying without a look at the master's records")


async def test_master_that_is_gone_is_asked_at_its_last_address() -> None:
    """No name server knows it yet when its HA port answers again."""
    config = replication_settings(brokerRole="SLAVE", brokerId="1").config.replication
    known, master = KnownMaster(config), StatedMaster({700: b"last"}, (0, 5_000))
    known.tell("a", MASTER, "10.0.0.1:10912")
    known.tell("a", None, None)
    assert await CopyStart(EndedLog(720, b"last"), known, config, FILE).find(master.connect) == 720
    assert master.asked == [MASTER]


async def test_master_that_does_not_answer_is_not_copied() -> None:
    """It is tried again, as one that cannot be reached."""
    with pytest.raises(RocketletError, match="no answer"):
        await make(EndedLog(720, b"last")).find(StatedMaster(failure="no answer").connect)


@pytest.mark.parametrize(
    ("bounds", "offered", "starts"),
    [
        ((0, 5_500), [0], [0]),  # ours, which gives all
        ((2_000, 5_500), [2_000], [2_000]),
        ((0, 5_500), [5_000, 1_000], [0, 1_000]),  # an official one, which gives its newest file for 0
        ((0, 1_500), [1_000], [0]),
        ((0, 5_500), [5_000, 4_000], [0, 1_000]),  # the file was deleted meanwhile
    ],
)
async def test_empty_log_begins_at_the_oldest_file(
    bounds: tuple[int, int], offered: list[int], starts: list[int]
) -> None:
    """It asks for the oldest file that it can name, and accepts what comes of that."""
    start, master = make(EndedLog(0)), StatedMaster({}, bounds)
    assert [(await start.find(master.connect), start.accepts(offer)) for offer in offered] == [
        (reported, number == len(starts) - 1) for number, reported in enumerate(starts)
    ]


async def test_newest_file_is_enough_where_that_is_set() -> None:
    """With syncFromLastFile nobody is asked, and whatever is offered is accepted."""
    start = make(EndedLog(0), syncFromLastFile="true")
    assert await start.find(StatedMaster(failure="not asked").connect) == 0
    assert start.accepts(5_000)
