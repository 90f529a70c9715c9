"""The steps of a workload for crash points: sends of all kinds, and everything else that a store goes through.

To add a message type or a state file: write a small function that takes the ``World``, and put it into ``STEPS`` with
its weight. A step that sends calls ``world.send`` (one message), ``world.send_batch``, or ``world.place`` with what it
appended and then ``world.commit``; a step that saves a state file calls ``world.save``. The checks follow from the
facts that these mark; what they cannot know is a new fact in ``ledger`` and its check in ``verify``.
"""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from crash.filters import FILTERS_FILE, load_filters
from crash.halves import check_halves, end_halves, send_half
from crash.ledger import Consumed, Retired, TopicRemoved
from crash.timed import send_timed, work_timers
from crash.world import DELAYS_FILE, INNER_BATCH_TOPIC, OFFSETS_FILE, World

from rocketlet.broker.delay.delay_progress import DelayFile, DelayProgress
from rocketlet.common.errors import MessageIllegalError
from rocketlet.common.java_json import read_json_as
from rocketlet.common.message import (
    BORN_HOST_V6,
    INNER_BATCH,
    NEEDS_UNWRAP,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.common.subscriptions.subscription import SQL92_TYPE, Subscription
from rocketlet.store.files.config_files import load_config_text

_V6 = bytes(range(16)) + b"\0\0\0\x07"


def send_plain(world: World) -> None:
    """A message without anything."""
    world.send(world.message(queue_id=world.chance.randrange(3)))


def send_one_way(world: World) -> None:
    """A message that nobody waits for: it is not flushed, and may be lost."""
    new = world.message("OneWay")
    world.place(new, world.store.append(new))
    world.commit()


def send_keys(world: World) -> None:
    """A message with a tag and several keys."""
    number = world.number
    world.send(world.message("Keys", number % 2, TAGS=f"t{number % 3}", KEYS=f"k{number} common"))


def send_properties(world: World) -> None:
    """A message with many properties, text beyond ASCII and an empty body."""
    many = {f"p{n}": f"wert-ä-{n}" for n in range(12)}
    new = world.message("Plain", 1, 0, **many, MSG_REGION="r", TRACE_ON="true")
    new.body = b""
    world.send(new)


def send_long(world: World) -> None:
    """A message that takes most of a file: it opens the next one."""
    world.send(world.message("Long", 0, size=world.chance.randrange(1_500, 3_800), KEYS="long"))


def send_v6(world: World) -> None:
    """A message from an IPv6 host."""
    new = world.message("Plain", 2)
    new.born_host = _V6
    new.sys_flag |= BORN_HOST_V6
    world.send(new)


def send_batch(world: World) -> None:
    """A batch, in one queue and one file."""
    world.send_batch([world.message("Batch", 0, size=30, KEYS=f"b{n}") for n in range(world.chance.randrange(2, 9))])


def send_many(world: World) -> None:
    """Messages of several queues with one write, over the ends of files."""
    for number in range(world.chance.randrange(5, 25)):
        new = world.message("Many", number % 4, size=world.chance.randrange(400))
        world.place(new, world.store.append(new))
    world.commit()
    if world.is_sync:
        world.flush()


def send_prepared(world: World) -> None:
    """A half message of the old kind, which gets no queue entry, and one that was rolled back."""
    for flag in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
        new = world.message("Half")
        new.sys_flag |= flag
        world.send(new)


def send_delayed(world: World) -> None:
    """A delayed message, whose queue entry names its time."""
    world.send(world.message("SCHEDULE_TOPIC_XXXX", 2, DELAY="3", REAL_TOPIC="Plain", REAL_QID="1"))


def send_retry(world: World) -> None:
    """A message that came back, in a topic whose name needs the second record version."""
    new = world.message("%RETRY%" + "g" * 130)
    new.reconsume_times = 3
    world.send(new)


def send_group(world: World) -> None:
    """Senders whose messages are flushed together, and one whose message comes while the disk is busy."""
    for _ in range(3):
        new = world.message("Group", world.chance.randrange(2))
        world.place(new, world.store.append(new))
        world.commit()
    late = world.message("Group", 0)

    def send_late() -> None:
        world.place(late, world.store.append(late))
        world.commit()

    world.recorder.during_sync = send_late
    world.flush()


def send_inner_batch(world: World) -> None:
    """Several messages in one record, in a queue that counts by messages."""
    parts = [BatchPart(0, b"part %d" % n, b"") for n in range(world.chance.randrange(1, 6))]
    new = world.message(INNER_BATCH_TOPIC, world.number % 2, KEYS="inner")
    new.body = encode_batch(parts)
    new.sys_flag |= INNER_BATCH | NEEDS_UNWRAP
    world.send(new)


def send_refused(world: World) -> None:
    """A message that no store can hold takes no place."""
    try:
        world.store.append(world.message("Plain", 0, size=world.config.segment_bytes))
    except MessageIllegalError:
        return
    raise AssertionError("a message that is larger than a file was taken")


def flush(world: World) -> None:
    """The log reaches the disk."""
    world.flush()


def flush_queues(world: World) -> None:
    """Log, queues, index and checkpoint reach the disk."""
    world.now_ms += 61_000
    world.store.tick()
    world.flush()


def build_index(world: World) -> None:
    """Index entries are written."""
    world.store.tick()


def consume(world: World) -> None:
    """Consumers read what is readable and their progress is saved."""
    progress: dict[str, dict[str, int]] = {}
    for topic, queue_id in world.store.queues():
        end = world.store.max_offset(topic, queue_id)
        world.recorder.mark(Consumed(topic, queue_id, end))
        progress.setdefault(f"{topic}@g", {})[str(queue_id)] = end
    world.save(OFFSETS_FILE, {"dataVersion": {"counter": world.number}, "offsetTable": progress})


def deliver(world: World) -> None:
    """Delayed messages are delivered when their time has come; the progress is saved behind a flush, or not at all."""
    world.pass_time(10_000)
    progress = DelayProgress(lambda: world.now_ms, version_step=200)
    text = load_config_text(f"{world.config.root}/{DELAYS_FILE}")
    if text:
        progress.load(read_json_as(text, DelayFile))
    world.deliver(progress)
    if world.chance.random() < 0.7:
        world.flush()
        world.save(DELAYS_FILE, {"dataVersion": {"counter": world.number}, "offsetTable": progress.latest()})


def save_topics(world: World) -> None:
    """The list of topics changes and is saved."""
    world.save_topics()


def subscribe(world: World) -> None:
    """A group with a property filter comes, changes it or goes; the filters are saved, without those long dead."""
    world.pass_time(world.chance.randrange(1, 40_000))
    table = load_filters(load_config_text(f"{world.config.root}/{FILTERS_FILE}"), world.now_ms)
    group = world.chance.choice(("buyers", "sellers", "clerks"))
    if table.find("Keys", group) is not None and world.chance.random() < 0.4:
        table.unregister(group)
    else:
        wish = f"price > {world.number} AND TAGS = 'größe'"
        table.register(group, [Subscription("Keys", wish, expression_type=SQL92_TYPE, version=world.now_ms)])
    table.drop_long_dead()
    world.save(FILTERS_FILE, msgspec.to_builtins(table.content()))


def restart(world: World) -> None:
    """A clean stop and a start."""
    world.stop()
    world.pass_time(1_000)
    world.reopen()


def kill(world: World) -> None:
    """The process is killed and starts again, while the system stays up."""
    world.kill()
    world.reopen()


def remove_topic(world: World) -> None:
    """A topic is removed."""
    topic = world.chance.choice(("Many", "Batch", "Keys"))
    world.recorder.mark(TopicRemoved(topic, world.store.log_max_offset))
    world.store.delete_topic(topic)


def clean(world: World) -> None:
    """Retention removes files of the log, and of queues and index behind it."""
    world.recorder.mark(Retired(world.store.log_max_offset))
    world.store.cleaner.ask()
    world.store.clean_now()


class Step(NamedTuple):
    """What a workload may do next, and how often compared with the others."""

    do: Callable[[World], None]
    weight: int


STEPS = (
    Step(send_plain, 6),
    Step(send_one_way, 2),
    Step(send_keys, 6),
    Step(send_properties, 2),
    Step(send_long, 3),
    Step(send_v6, 2),
    Step(send_batch, 3),
    Step(send_many, 3),
    Step(send_prepared, 1),
    Step(send_delayed, 2),
    Step(send_timed, 4),
    Step(work_timers, 4),
    Step(send_half, 4),
    Step(send_retry, 1),
    Step(send_group, 3),
    Step(send_inner_batch, 2),
    Step(send_refused, 1),
    Step(flush, 3),
    Step(flush_queues, 3),
    Step(build_index, 2),
    Step(consume, 2),
    Step(deliver, 2),
    Step(end_halves, 3),
    Step(check_halves, 2),
    Step(save_topics, 1),
    Step(subscribe, 2),
    Step(restart, 1),
    Step(kill, 1),
    Step(remove_topic, 1),
    Step(clean, 1),
)


def run_workload(folder: pathlib.Path, seed: str, steps: int, *, is_sync: bool) -> World:
    """Run every step once in a random order, and then so many by their weights."""
    world = World(folder, seed, is_sync=is_sync)
    first = list(STEPS)
    world.chance.shuffle(first)
    more = world.chance.choices(STEPS, [step.weight for step in STEPS], k=steps)
    for step in (*first, *more):
        step.do(world)
    world.kill()
    return world
