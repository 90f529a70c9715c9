"""Timer messages in a workload: sends and recalls, and rounds of a broker that has just opened the timer files.

What has to hold: a message that was acknowledged, whose record is still there and that nobody has recalled, has come or
comes, whatever became of wheel, timer log and progress.
"""

from crash.ledger import Ledger, Sent
from crash.world import World
from stores import read_queue

from rocketlet.broker.delay.timer_delivery import TimerDelivery
from rocketlet.broker.delay.timer_messages import TimerRequests
from rocketlet.common.names import TIMER_TOPIC
from rocketlet.common.properties import TIMER_DEL_UNIQKEY, UNIQ_KEY
from rocketlet.common.record import decode_record
from rocketlet.store.message_store import MessageStore

TOPIC = "Timed"


def send_timed(world: World) -> None:
    """Messages that are to come soon, or later, some for the same second; one of them is recalled now and then."""
    requests = TimerRequests(world.config.timers, lambda _: 0, lambda _: 0)
    at_ms = world.now_ms + world.chance.choice((1_500, 4_000, 60_000, 900_000))
    for _ in range(world.chance.randrange(1, 4)):
        new = world.message(TOPIC, 0, size=world.chance.randrange(200), TIMER_DELIVER_MS=str(at_ms))
        world.send(requests.rewrite(new, world.now_ms) or new)
        at_ms += world.chance.choice((0, 0, 700, 5_000))
        if world.chance.random() < 0.2:
            recall = world.message(TOPIC, 0, 1, TIMER_DELIVER_MS=str(at_ms), TIMER_DEL_UNIQKEY=new.properties[UNIQ_KEY])
            world.send(requests.rewrite(recall, world.now_ms) or recall)


def work_timers(world: World) -> None:
    """Time passes, and messages go into the wheel and come out of it; the progress is saved behind a flush, or not."""
    timers = world.store.timers()
    world.store.appended.clear()
    delivery = TimerDelivery(world.store, timers, world.commit_appended, lambda: world.now_ms)
    for _ in range(world.chance.randrange(1, 4)):
        world.pass_time(world.chance.randrange(6_000))
        _work(delivery)
        save = timers.take_save() if world.chance.random() < 0.6 else None
        if save is not None:
            world.flush()
            timers.write(save)
            timers.settle(save)
    if world.chance.random() < 0.3:
        timers.clean(world.store.log_min_offset)
    timers.close()


def verify_timed(store: MessageStore, ledger: Ledger, now_ms: int) -> None:
    """Check that all messages come which must."""

    def commit() -> None:
        store.commit()
        store.flush()

    timers = store.timers()
    _work(TimerDelivery(store, timers, commit, lambda: now_ms))
    save = timers.take_save()
    if save is not None:
        timers.write(save)
    timers.close()
    start, sent = store.log_min_offset, [one for placed in ledger.sent.values() for one in placed]
    done = {record.properties[UNIQ_KEY] for record in read_queue(store, TOPIC, 0)} | _recalled(sent)
    done |= {one.keys[0] for one in sent if one.topic == TOPIC and one.log_offset < start}
    for one in ledger.required(start):
        assert one.topic != TIMER_TOPIC or one.keys[0] in done, f"the timer message {one.keys} is lost"


def _recalled(sent: list[Sent]) -> set[str]:
    """Return the keys of messages that need not come, and of the recalls themselves."""
    keys: set[str] = set()
    for one in sent:
        if one.topic == TIMER_TOPIC and TIMER_DEL_UNIQKEY.encode() in one.data:
            properties = decode_record(one.data).properties
            keys |= {properties[UNIQ_KEY], properties[TIMER_DEL_UNIQKEY]}
    return keys


def _work(delivery: TimerDelivery) -> None:
    while not delivery.is_idle:
        slow = delivery.advance()
        if slow is not None:
            slow()
