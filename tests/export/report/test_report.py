from javastores import Read
from logbuilder import LogBuilder

from rocketlet.export.write.read import ReadOptions
from rocketlet.store.commitlog.record_blocks import ScanLimits


def test_missing_and_repeated_offsets_are_faults(log: LogBuilder, read: Read) -> None:
    """A queue that lacks an offset, or has one twice, breaks the proof; the fault names queue and number."""
    for queue_offset in (3, 4, 7, 8):
        log.add(queue_offset=queue_offset)
    for queue_offset in (0, 1, 1):
        log.add(queue_id=1, queue_offset=queue_offset)
    log.save()
    _, report = read(log.root)
    assert report.faults() == [
        f"{log.root}: Topic queue 0: missing queue offsets: 2, the first is 5",
        f"{log.root}: Topic queue 1: repeated queue offsets: 1",
    ]
    assert report.to_json()["proved"] is False
    assert not any(line.startswith("proof holds") for line in report.lines())


def test_lines_name_counts_and_proof(log: LogBuilder, read: Read) -> None:
    """The text has a line per queue, the sum, and the proof."""
    log.add()
    log.add(topic="%DLQ%g")
    log.save()
    _, report = read(log.root, options=ReadOptions())
    assert list(report.lines()) == [
        f"{log.root}: 2 records and 0 blanks in {log.end} bytes of log",
        "  Topic queue 0: 1 rows, offsets 0 to 0",
        "  left out, dead letter topic: 1",
        "  2 messages = 1 rows + 1 left out",
        "proof holds: every message is counted, every queue offset is there once, all body checksums are right",
    ]


def test_proof_does_not_claim_what_was_not_looked_at(log: LogBuilder, read: Read) -> None:
    """Without checksums there is no claim about them, and the JSON report is not proved."""
    log.add()
    log.save()
    _, report = read(log.root, options=ReadOptions(limits=ScanLimits(checks_crc=False)))
    assert report.stores[0].checked_bodies == 0
    assert report.to_json()["proved"] is False
    assert list(report.lines())[-1].endswith("body checksums were not looked at")


def test_many_faults_are_summed_up(log: LogBuilder, read: Read) -> None:
    """The text names five faults and counts the others; the JSON has them all."""
    for queue_id in range(9):
        log.add(queue_id=queue_id, queue_offset=0)
        log.add(queue_id=queue_id, queue_offset=2)
    log.save()
    _, report = read(log.root)
    assert len(report.to_json()["faults"]) == 9
    assert list(report.lines())[-1] == "fault: 4 more"


def test_queue_ids_keep_their_sign(log: LogBuilder, read: Read) -> None:
    """A negative queue id, which only a broken producer sends, is counted as what it is."""
    log.add(queue_id=-1)
    log.save()
    _, report = read(log.root)
    assert list(report.stores[0].queues) == [("Topic", -1)]
