"""Transactions in a workload: half messages, their ends and checks, as a broker that has just started does them.

What has to hold: a half message that was acknowledged and not ended is open, or was given up, whatever became of the
cursors and of its copies. That committed messages are in the log follows from the facts about records.
"""

import json

from crash.ledger import HalfEnded, HalfOpened, Ledger
from crash.world import OFFSETS_FILE, World
from stores import read_queue

from rocketlet.broker.group.groups import OffsetFile, OffsetTable
from rocketlet.broker.outcomes.scheduler import CommitParticipant
from rocketlet.broker.transaction.checks import CheckRules, TransactionChecks
from rocketlet.broker.transaction.half_messages import committed, given_up, half_of
from rocketlet.broker.transaction.transactions import TRANSACTION_GROUP, Transactions
from rocketlet.common.java_json import read_json_as
from rocketlet.common.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_DISCARD_TOPIC
from rocketlet.common.properties import UNIQ_KEY
from rocketlet.common.record import Record, decode_record
from rocketlet.store.files.config_files import load_config_text
from rocketlet.store.message_store import MessageStore

LATER_MS = 60_000
_JOINED: list[CommitParticipant] = []
_RULES = CheckRules(timeout_ms=6_000, most_checks=15, reserved_ms=72 * 3_600_000)
"""Who wants to add records to the next commit."""


def send_half(world: World) -> None:
    """A message of a transaction, which consumers are not to see."""
    new = half_of(world.message("Plain", 1, TRAN_MSG="true", PGROUP="g"))
    new.born_at_ms = world.now_ms
    placed = world.store.append(new)
    world.recorder.mark(HalfOpened(new.properties[UNIQ_KEY], placed.log_offset, placed.log_offset + placed.size))
    world.place(new, placed)
    world.commit()
    if world.is_sync:
        world.flush()


def end_halves(world: World) -> None:
    """Some transactions are committed or rolled back; one op message names them, in the same commit."""
    transactions = _load(world.store, world.now_ms)
    world.store.appended.clear()
    for half in _open_halves(world.store, transactions):
        if world.chance.random() < 0.5:
            world.recorder.mark(HalfEnded(half.properties[UNIQ_KEY]))
            if world.chance.random() < 0.7:
                world.store.append(committed(half))
            transactions.settle(half.queue_offset)
    _commit(world, transactions)


def check_halves(world: World) -> None:
    """A round of checks copies what is open; the cursors are saved behind a flush, or not at all."""
    world.pass_time(LATER_MS)
    transactions = _load(world.store, world.now_ms)
    world.store.appended.clear()
    checks = TransactionChecks(transactions, lambda: _commit(world, transactions), lambda: _RULES, given_up)
    transactions.mark()
    while not checks.step(world.now_ms, world.now_ms).is_last:
        pass
    if world.chance.random() < 0.7:
        world.flush()
        table = json.loads(load_config_text(f"{world.config.root}/{OFFSETS_FILE}") or '{"offsetTable": {}}')
        for topic, offset in zip((HALF_TOPIC, OP_HALF_TOPIC), transactions.cursors, strict=True):
            table["offsetTable"][f"{topic}@{TRANSACTION_GROUP}"] = {"0": offset}
        world.save(OFFSETS_FILE, table)


def verify_halves(store: MessageStore, ledger: Ledger, offsets: str | None, now_ms: int) -> None:
    """Check that what is to be open would be checked after this start."""
    table = _read_offsets(offsets, now_ms)
    table.pull_back(store.max_offset)
    transactions = _load_from(store, table, now_ms)
    given = read_queue(store, TRANSACTION_DISCARD_TOPIC, 0)
    open_keys = {half.properties[UNIQ_KEY] for half in (*_open_halves(store, transactions), *given)}
    for one in ledger.open_halves():
        assert one.key in open_keys, f"the half message {one} is neither open nor given up at {transactions.cursors}"


def _load(store: MessageStore, now_ms: int) -> Transactions:
    text = load_config_text(f"{store.config.root}/{OFFSETS_FILE}")
    return _load_from(store, _read_offsets(text, now_ms), now_ms)


def _read_offsets(text: str | None, now_ms: int) -> OffsetTable:
    table = OffsetTable(lambda: now_ms, version_step=500)
    if text:
        table.load(read_json_as(text, OffsetFile))
    return table


def _load_from(store: MessageStore, table: OffsetTable, now_ms: int) -> Transactions:
    transactions = Transactions(store, table, _JOINED.append, lambda: now_ms, most_op_bytes=4_096)
    while transactions.read_ops():
        pass
    return transactions


def _open_halves(store: MessageStore, transactions: Transactions) -> list[Record]:
    end, offset, found = store.max_offset(HALF_TOPIC, 0), transactions.cursors.half, list[Record]()
    while (offset := transactions.next_open(offset, end)) < end:
        entries = store.entries(HALF_TOPIC, 0, offset, 1)
        data = store.record_at(*entries[0][:2]) if entries else None
        if data is not None:
            found.append(decode_record(data))
        offset += 1
    return found


def _commit(world: World, transactions: Transactions) -> None:
    """Write what was appended, and the op message, which the scheduler asks for otherwise."""
    if _JOINED:
        _JOINED.clear()
        transactions.join()
    world.commit_appended()
