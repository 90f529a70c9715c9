"""The shop in asynchronous tests: it runs on the event loop of the test, which awaits instead of blocking."""

import pathlib
from collections.abc import AsyncIterator

import pytest

from bank import ScriptedBank
from rocketlet.common.codes import ResponseCode
from rocketlet.testing import Fault, RocketmqBroker
from shop import Charge, OrderState, Places, Shop


@pytest.fixture
async def shop(
    rocketmq_broker: RocketmqBroker, places: Places, bank: ScriptedBank, tmp_path: pathlib.Path
) -> AsyncIterator[Shop]:
    """Run a shop on the broker of the session."""
    async with Shop(tmp_path, bank, rocketmq_broker.nameserver, places) as shop:
        yield shop


# --- orders


async def test_order_is_announced(rocketmq_broker: RocketmqBroker, shop: Shop, places: Places):
    """An order is told once, by its number and state; nothing of it is for the warehouse."""
    order = await shop.counter.place("tea", 2)
    body = {"id": order.id, "item": "tea", "quantity": 2}
    rocketmq_broker.assert_sent(places.orders, json=body, tags="placed", keys=[order.id], times=1)
    await rocketmq_broker.consumed(places.warehouse)
    assert rocketmq_broker.lag(places.warehouse).total == 0


async def test_order_survives_the_end_of_the_broker(rocketmq_broker: RocketmqBroker, shop: Shop, places: Places):
    """What a broker has acknowledged is there when it comes back, and the shop goes on."""
    first = await shop.counter.place("tea")
    rocketmq_broker.kill()
    rocketmq_broker.restart()
    second = await shop.counter.place("coffee")
    for order in (first, second):
        rocketmq_broker.assert_sent(places.orders, tags="placed", keys=[order.id], times=1)


# --- payment by transaction


async def test_paid_order_is_shipped(rocketmq_broker: RocketmqBroker, shop: Shop, places: Places):
    """The message of an accepted payment is delivered, and the warehouse ships."""
    shop.stock.add("tea", 3)
    order = await shop.counter.place("tea", 2)
    assert await shop.counter.pay(order.id) is OrderState.PAID
    await rocketmq_broker.arrived(places.orders, tag="shipped", key=order.id)
    assert shop.stock.count("tea") == 1
    assert rocketmq_broker.transactions() == []


async def test_declined_payment_is_not_told(
    rocketmq_broker: RocketmqBroker, shop: Shop, places: Places, bank: ScriptedBank
):
    """Nobody hears of a payment that the bank declines."""
    bank.answer = Charge.DECLINED
    order = await shop.counter.place("tea")
    assert await shop.counter.pay(order.id) is OrderState.PLACED
    await rocketmq_broker.clock.elapse(minutes=5)
    assert rocketmq_broker.transactions() == []
    rocketmq_broker.assert_sent(places.orders, tags="paid", times=0)


async def test_pending_payment_is_asked_about(
    rocketmq_broker: RocketmqBroker, shop: Shop, places: Places, bank: ScriptedBank
):
    """A payment stays open until the bank has told; then the answer to the broker's next question delivers it."""
    bank.answer = Charge.PENDING
    order = await shop.counter.place("tea")
    await shop.counter.pay(order.id)
    await rocketmq_broker.clock.elapse(minutes=2)
    (open_payment,) = rocketmq_broker.transactions()
    assert open_payment.message.keys == (order.id,)
    assert open_payment.check_count > 0

    assert shop.counter.confirm(order.id, bank.payments[order.id])
    await rocketmq_broker.clock.elapse(minutes=2)
    assert rocketmq_broker.transactions() == []
    rocketmq_broker.assert_sent(places.orders, tags="paid", keys=[order.id], times=1)


async def test_payment_of_a_cancelled_order_is_dropped(
    rocketmq_broker: RocketmqBroker, shop: Shop, places: Places, bank: ScriptedBank
):
    """A bank that has not decided within half an hour is too late."""
    bank.answer = Charge.PENDING
    order = await shop.counter.place("tea")
    await shop.counter.pay(order.id)
    await rocketmq_broker.clock.elapse(minutes=32)
    assert not shop.counter.confirm(order.id, bank.payments[order.id])
    assert rocketmq_broker.transactions() == []
    rocketmq_broker.assert_sent(places.orders, tags="paid", times=0)
    rocketmq_broker.assert_sent(places.orders, tags="cancelled", keys=[order.id], times=1)


async def test_lost_commit_is_made_good(rocketmq_broker: RocketmqBroker, shop: Shop, places: Places):
    """A commit that never arrives is only late: the broker asks, and the shop looks into its table."""
    lost = rocketmq_broker.faults.add(on="end_transaction", answer=Fault.DROP)
    order = await shop.counter.place("tea")
    assert await shop.counter.pay(order.id) is OrderState.PAID
    await lost.met()
    rocketmq_broker.assert_sent(places.orders, tags="paid", times=0)
    await rocketmq_broker.clock.elapse(minutes=2)
    rocketmq_broker.assert_sent(places.orders, tags="paid", keys=[order.id], times=1)


# --- retries and dead letters


async def test_order_waits_for_stock(rocketmq_broker: RocketmqBroker, shop: Shop, places: Places):
    """The warehouse tries again after ten seconds, and after thirty more, and ships when there is enough."""
    rocketmq_broker.clock.freeze()
    order = await shop.counter.place("tea")
    await shop.counter.pay(order.id)
    await rocketmq_broker.arrived(places.orders, tag="paid")
    await rocketmq_broker.consumed(places.warehouse)
    assert tries(rocketmq_broker, places) == 1
    for seconds, expected in ((9, 1), (1, 2), (29, 2), (1, 3)):
        await rocketmq_broker.clock.elapse(seconds=seconds)
        assert tries(rocketmq_broker, places) == expected
    shop.stock.add("tea", 1)
    await rocketmq_broker.clock.elapse(minutes=1)
    rocketmq_broker.assert_sent(places.orders, tags="shipped", keys=[order.id], times=1)
    assert rocketmq_broker.dead_letters(places.warehouse) == []


async def test_order_that_cannot_be_shipped_is_a_dead_letter(
    rocketmq_broker: RocketmqBroker, shop: Shop, places: Places
):
    """After three more tries, in less than two minutes, the order is given up."""
    order = await shop.counter.place("tea")
    await shop.counter.pay(order.id)
    await rocketmq_broker.arrived(places.orders, tag="paid")
    await rocketmq_broker.consumed(places.warehouse)
    await rocketmq_broker.clock.elapse(minutes=2)
    (given_up,) = rocketmq_broker.dead_letters(places.warehouse)
    assert given_up.keys == (order.id,)
    assert tries(rocketmq_broker, places) == 4


async def test_shipped_order_is_told_by_a_busy_broker(rocketmq_broker: RocketmqBroker, shop: Shop, places: Places):
    """A warehouse that cannot tell that it has shipped tries again, and takes nothing off the shelf twice."""
    shop.stock.add("tea", 3)
    order = await shop.counter.place("tea")
    rocketmq_broker.faults.add(on="send", topic=places.orders, after=1, times=3, answer=ResponseCode.SYSTEM_BUSY)
    await shop.counter.pay(order.id)
    await rocketmq_broker.arrived(places.orders, tag="paid")
    await rocketmq_broker.consumed(places.warehouse)
    rocketmq_broker.assert_sent(places.orders, tags="shipped", times=0)
    await rocketmq_broker.clock.elapse(seconds=10)
    rocketmq_broker.assert_sent(places.orders, tags="shipped", keys=[order.id], times=1)
    assert shop.stock.count("tea") == 2


def tries(broker: RocketmqBroker, places: Places) -> int:
    """Return how often the warehouse has sent an order back."""
    return len(broker.requests(on="send_back", group=places.warehouse))


# --- delays


async def test_unpaid_order_is_cancelled(rocketmq_broker: RocketmqBroker, shop: Shop, places: Places):
    """An order waits half an hour for its payment, and not longer."""
    order = await shop.counter.place("tea")
    await rocketmq_broker.clock.elapse(minutes=29)
    assert shop.orders.get(order.id).state is OrderState.PLACED
    await rocketmq_broker.clock.elapse(minutes=2)
    assert shop.orders.get(order.id).state is OrderState.CANCELLED
    rocketmq_broker.assert_sent(places.orders, tags="cancelled", keys=[order.id], times=1)


async def test_paid_order_is_not_cancelled(rocketmq_broker: RocketmqBroker, shop: Shop, places: Places):
    """The hour of payment passes without a word for an order that is paid."""
    order = await shop.counter.place("tea")
    await shop.counter.pay(order.id)
    await rocketmq_broker.clock.elapse(minutes=31)
    assert shop.orders.get(order.id).state is OrderState.PAID
    rocketmq_broker.assert_sent(places.orders, tags="cancelled", times=0)
