"""The shop in tests of unittest: one broker for all tests of a class, and a test begins and ends by itself."""

import pathlib
import tempfile
import unittest
from collections.abc import Mapping
from typing import ClassVar

from bank import ScriptedBank
from rocketlet.testing import Fault, RocketmqBroker
from shop import BackgroundShop, Charge, OrderState, Places, Shop


class BrokerTestCase(unittest.TestCase):
    """Has one broker for the tests of a class; each begins and ends there, which the plugin does for pytest."""

    settings: ClassVar[Mapping[str, str]] = {}
    broker: ClassVar[RocketmqBroker]

    @classmethod
    def setUpClass(cls) -> None:
        """Start the broker of the class."""
        cls.broker = cls.enterClassContext(RocketmqBroker(cls.settings))

    def setUp(self) -> None:
        """Begin a test; it ends behind what is closed after this."""
        self.broker.prefix = self.id()  # of the names of topics and groups
        self.broker.begin_test()
        self.addCleanup(self.broker.end_test)

    def make_shop(self) -> Shop:
        """Make a shop with names and tables of the test's own."""
        broker, self.bank = self.broker, ScriptedBank()
        self.places = Places(broker.topic(), broker.topic(), broker.group(), broker.group(), broker.group())
        directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        return Shop(directory, self.bank, broker.nameserver, self.places)


class ShopTestCase(BrokerTestCase):
    """Has a shop in a thread."""

    def setUp(self) -> None:
        """Open the shop, which is closed before the test ends."""
        super().setUp()
        self.shop = self.enterContext(BackgroundShop(self.make_shop()))


class OrdersTest(ShopTestCase):
    """Orders are told."""

    def test_order_is_announced(self) -> None:
        """An order is told once, by its number and state; nothing of it is for the warehouse."""
        order = self.shop.place("tea", 2)
        body = {"id": order.id, "item": "tea", "quantity": 2}
        self.broker.assert_sent(self.places.orders, json=body, tags="placed", keys=[order.id], times=1)
        self.broker.wait_consumed(self.places.warehouse)
        self.assertEqual(self.broker.lag(self.places.warehouse).total, 0)


class PaymentsTest(ShopTestCase):
    """Payments are transactions."""

    def test_paid_order_is_shipped(self) -> None:
        """The message of an accepted payment is delivered, and the warehouse ships."""
        self.shop.stock.add("tea", 3)
        order = self.shop.place("tea", 2)
        self.assertIs(self.shop.pay(order.id), OrderState.PAID)
        self.broker.wait_for(self.places.orders, tag="shipped", key=order.id)
        self.assertEqual(self.shop.stock.count("tea"), 1)
        self.assertEqual(self.broker.transactions(), [])

    def test_declined_payment_is_not_told(self) -> None:
        """Nobody hears of a payment that the bank declines."""
        self.bank.answer = Charge.DECLINED
        order = self.shop.place("tea")
        self.assertIs(self.shop.pay(order.id), OrderState.PLACED)
        self.broker.clock.advance(minutes=5)
        self.assertEqual(self.broker.transactions(), [])
        self.broker.assert_sent(self.places.orders, tags="paid", times=0)

    def test_pending_payment_is_asked_about(self) -> None:
        """A payment stays open until the bank has told; then the answer to the broker's next question delivers it."""
        self.bank.answer = Charge.PENDING
        order = self.shop.place("tea")
        self.shop.pay(order.id)
        self.broker.clock.advance(minutes=2)
        (open_payment,) = self.broker.transactions()
        self.assertEqual(open_payment.message.keys, (order.id,))
        self.assertTrue(self.shop.confirm(order.id, self.bank.payments[order.id]))
        self.broker.clock.advance(minutes=2)
        self.broker.assert_sent(self.places.orders, tags="paid", keys=[order.id], times=1)

    def test_lost_commit_is_made_good(self) -> None:
        """A commit that never arrives is only late: the broker asks, and the shop looks into its table."""
        lost = self.broker.faults.add(on="end_transaction", answer=Fault.DROP)
        order = self.shop.place("tea")
        self.assertIs(self.shop.pay(order.id), OrderState.PAID)
        lost.wait()
        self.broker.assert_sent(self.places.orders, tags="paid", times=0)
        self.broker.clock.advance(minutes=2)
        self.broker.assert_sent(self.places.orders, tags="paid", keys=[order.id], times=1)


class WarehouseTest(ShopTestCase):
    """Orders wait for stock, and are given up."""

    def test_order_waits_for_stock(self) -> None:
        """The warehouse tries again after ten seconds, and after thirty more, and ships when there is enough."""
        self.broker.clock.freeze()
        self.shop.pay(self.shop.place("tea").id)
        self.broker.wait_for(self.places.orders, tag="paid")
        self.broker.wait_consumed(self.places.warehouse)
        self.assertEqual(self.tries(), 1)
        for seconds, expected in ((9, 1), (1, 2), (29, 2), (1, 3)):
            self.broker.clock.advance(seconds=seconds)
            self.assertEqual(self.tries(), expected)
        self.shop.stock.add("tea", 1)
        self.broker.clock.advance(minutes=1)
        self.broker.assert_sent(self.places.orders, tags="shipped", times=1)
        self.assertEqual(self.broker.dead_letters(self.places.warehouse), [])

    def test_order_that_cannot_be_shipped_is_a_dead_letter(self) -> None:
        """After three more tries, in less than two minutes, the order is given up."""
        order = self.shop.place("tea")
        self.shop.pay(order.id)
        self.broker.wait_for(self.places.orders, tag="paid")
        self.broker.wait_consumed(self.places.warehouse)
        self.broker.clock.advance(minutes=2)
        (given_up,) = self.broker.dead_letters(self.places.warehouse)
        self.assertEqual(given_up.keys, (order.id,))
        self.assertEqual(self.tries(), 4)

    def tries(self) -> int:
        """Return how often the warehouse has sent an order back."""
        return len(self.broker.requests(on="send_back", group=self.places.warehouse))


class DeadlinesTest(ShopTestCase):
    """Orders are to be paid in time."""

    def test_unpaid_order_is_cancelled(self) -> None:
        """An order waits half an hour for its payment, and not longer."""
        order = self.shop.place("tea")
        self.broker.clock.advance(minutes=29)
        self.assertIs(self.shop.orders.get(order.id).state, OrderState.PLACED)
        self.broker.clock.advance(minutes=2)
        self.assertIs(self.shop.orders.get(order.id).state, OrderState.CANCELLED)
        self.broker.assert_sent(self.places.orders, tags="cancelled", keys=[order.id], times=1)

    def test_paid_order_is_not_cancelled(self) -> None:
        """The hour of payment passes without a word for an order that is paid."""
        order = self.shop.place("tea")
        self.shop.pay(order.id)
        self.broker.clock.advance(minutes=31)
        self.assertIs(self.shop.orders.get(order.id).state, OrderState.PAID)
        self.broker.assert_sent(self.places.orders, tags="cancelled", times=0)


class AsynchronousTest(BrokerTestCase, unittest.IsolatedAsyncioTestCase):
    """Has a shop on the event loop of the test."""

    async def asyncSetUp(self) -> None:
        """Open the shop, which is closed before the test ends."""
        self.shop = await self.enterAsyncContext(self.make_shop())

    async def test_order_that_is_paid_in_time_is_kept(self) -> None:
        """An order that is paid before its hour is shipped, and not cancelled."""
        self.shop.stock.add("tea", 1)
        order = await self.shop.counter.place("tea")
        await self.broker.clock.elapse(minutes=29)
        await self.shop.counter.pay(order.id)
        await self.broker.arrived(self.places.orders, tag="shipped", key=order.id)
        await self.broker.clock.elapse(minutes=2)
        self.broker.assert_sent(self.places.orders, tags="cancelled", times=0)


if __name__ == "__main__":
    unittest.main()
