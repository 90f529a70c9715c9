"""The shop in synchronous tests: it runs in a thread, and the fixture waits, looks and moves time."""

import pathlib
from collections.abc import Iterator

import pytest

from bank import ScriptedBank
from rocketlet.common.codes import ResponseCode
from rocketlet.testing import Fault, RocketmqBroker
from shop import BackgroundShop, Charge, OrderState, Places, Shop


@pytest.fixture
def shop(
    rocketmq_broker: RocketmqBroker, places: Places, bank: ScriptedBank, tmp_path: pathlib.Path
) -> Iterator[BackgroundShop]:
    """Run a shop on the broker of the session."""
    with BackgroundShop(Shop(tmp_path, bank, rocketmq_broker.nameserver, places)) as shop:
        yield shop


# --- orders


def test_order_is_announced(rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places):
    """An order is told once, by its number and state; nothing of it is for the warehouse."""
    order = shop.place("tea", 2)
    body = {"id": order.id, "item": "tea", "quantity": 2}
    rocketmq_broker.assert_sent(places.orders, json=body, tags="placed", keys=[order.id], times=1)
    rocketmq_broker.wait_consumed(places.warehouse)
    assert rocketmq_broker.lag(places.warehouse).total == 0


def test_order_is_taken_by_a_busy_broker(rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places):
    """A broker that is busy twice is asked a third time, and has the order once."""
    rocketmq_broker.faults.add(on="send", topic=places.orders, times=2, answer=ResponseCode.SYSTEM_BUSY)
    order = shop.place("tea")
    rocketmq_broker.assert_sent(places.orders, keys=[order.id], times=1)
    assert len(rocketmq_broker.requests(on="send", topic=places.orders)) == 3


def test_order_of_another_program_is_shipped(rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places):
    """The warehouse ships what anybody says is paid; whoever reads the topic hears of it."""
    shop.stock.add("tea", 3)
    rocketmq_broker.send(places.orders, json={"id": "42", "item": "tea", "quantity": 2}, tags="paid", keys=["42"])
    (shipped,) = rocketmq_broker.receive(places.orders, tags="shipped", group="customers")
    assert shipped.keys == ("42",)
    assert shop.stock.count("tea") == 1


# --- payment by transaction


def test_paid_order_is_shipped(rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places):
    """The message of an accepted payment is delivered, and the warehouse ships."""
    shop.stock.add("tea", 3)
    order = shop.place("tea", 2)
    assert shop.pay(order.id) is OrderState.PAID
    rocketmq_broker.wait_for(places.orders, tag="shipped", key=order.id)
    assert shop.stock.count("tea") == 1
    assert rocketmq_broker.transactions() == []


def test_declined_payment_is_not_told(
    rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places, bank: ScriptedBank
):
    """Nobody hears of a payment that the bank declines."""
    bank.answer = Charge.DECLINED
    order = shop.place("tea")
    assert shop.pay(order.id) is OrderState.PLACED
    rocketmq_broker.clock.advance(minutes=5)
    assert rocketmq_broker.transactions() == []
    rocketmq_broker.assert_sent(places.orders, tags="paid", times=0)


def test_pending_payment_is_asked_about(
    rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places, bank: ScriptedBank
):
    """A payment stays open until the bank has told; then the answer to the broker's next question delivers it."""
    bank.answer = Charge.PENDING
    order = shop.place("tea")
    shop.pay(order.id)
    rocketmq_broker.clock.advance(minutes=2)
    (open_payment,) = rocketmq_broker.transactions()
    assert open_payment.message.keys == (order.id,)
    assert open_payment.check_count > 0
    rocketmq_broker.assert_sent(places.orders, tags="paid", times=0)

    assert shop.confirm(order.id, bank.payments[order.id])
    rocketmq_broker.clock.advance(minutes=2)
    assert rocketmq_broker.transactions() == []
    rocketmq_broker.assert_sent(places.orders, tags="paid", keys=[order.id], times=1)


def test_lost_commit_is_made_good(rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places):
    """A commit that never arrives is only late: the broker asks, and the shop looks into its table."""
    lost = rocketmq_broker.faults.add(on="end_transaction", answer=Fault.DROP)
    order = shop.place("tea")
    assert shop.pay(order.id) is OrderState.PAID
    lost.wait()
    rocketmq_broker.assert_sent(places.orders, tags="paid", times=0)
    rocketmq_broker.clock.advance(minutes=2)
    rocketmq_broker.assert_sent(places.orders, tags="paid", keys=[order.id], times=1)


# --- retries and dead letters


def test_order_waits_for_stock(rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places):
    """The warehouse tries again after ten seconds, and after thirty more, and ships when there is enough."""
    rocketmq_broker.clock.freeze()
    shop.pay(shop.place("tea").id)
    rocketmq_broker.wait_for(places.orders, tag="paid")
    rocketmq_broker.wait_consumed(places.warehouse)
    assert tries(rocketmq_broker, places) == 1
    for seconds, expected in ((9, 1), (1, 2), (29, 2), (1, 3)):
        rocketmq_broker.clock.advance(seconds=seconds)
        assert tries(rocketmq_broker, places) == expected
    shop.stock.add("tea", 1)
    rocketmq_broker.clock.advance(minutes=1)
    rocketmq_broker.assert_sent(places.orders, tags="shipped", times=1)
    assert rocketmq_broker.dead_letters(places.warehouse) == []


def test_order_that_cannot_be_shipped_is_a_dead_letter(
    rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places
):
    """After three more tries, in less than two minutes, the order is given up."""
    order = shop.place("tea")
    shop.pay(order.id)
    rocketmq_broker.wait_for(places.orders, tag="paid")
    rocketmq_broker.wait_consumed(places.warehouse)
    rocketmq_broker.clock.advance(minutes=2)
    (given_up,) = rocketmq_broker.dead_letters(places.warehouse)
    assert given_up.keys == (order.id,)
    assert tries(rocketmq_broker, places) == 4
    assert rocketmq_broker.lag(places.warehouse).total == 0


def tries(broker: RocketmqBroker, places: Places) -> int:
    """Return how often the warehouse has sent an order back."""
    return len(broker.requests(on="send_back", group=places.warehouse))


# --- delays


def test_unpaid_order_is_cancelled(rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places):
    """An order waits half an hour for its payment, and not longer."""
    order = shop.place("tea")
    rocketmq_broker.clock.advance(minutes=29)
    assert shop.orders.get(order.id).state is OrderState.PLACED
    rocketmq_broker.clock.advance(minutes=2)
    assert shop.orders.get(order.id).state is OrderState.CANCELLED
    rocketmq_broker.assert_sent(places.orders, tags="cancelled", keys=[order.id], times=1)


def test_paid_order_is_not_cancelled(rocketmq_broker: RocketmqBroker, shop: BackgroundShop, places: Places):
    """The hour of payment passes without a word for an order that is paid."""
    order = shop.place("tea")
    shop.pay(order.id)
    rocketmq_broker.clock.advance(minutes=31)
    assert shop.orders.get(order.id).state is OrderState.PAID
    rocketmq_broker.assert_sent(places.orders, tags="cancelled", times=0)
