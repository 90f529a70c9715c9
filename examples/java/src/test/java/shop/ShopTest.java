package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(RocketletExtension.class)
class ShopTest {
    private final Map<String, String> payments = new ConcurrentHashMap<>();
    private Bank.Charge answer = Bank.Charge.ACCEPTED;
    private Rocketlet broker;
    private Places places;
    private Shop shop;

    @BeforeEach
    void openShop(Rocketlet broker) throws Exception {
        this.broker = broker;
        places = new Places(broker.topic(), broker.topic(), broker.group(), broker.group(), broker.group());
        shop = new Shop(broker.nameserver, places, (order, payment) -> {
            payments.put(order.id(), payment);
            return answer;
        });
    }

    @AfterEach
    void closeShop() {
        shop.close();
    }

    @Test
    void orderIsAnnounced() throws Exception {
        Order order = shop.place("tea", 2);
        broker.post("/expect", Map.of("topic", places.orders(), "tags", "placed", "json", order, "times", 1));
        broker.waitConsumed(places.warehouse());
        assertEquals(0, broker.lag(places.warehouse()));
    }

    @Test
    void orderIsTakenByBusyBroker() throws Exception {
        broker.addFault(Map.of("on", "send", "topic", places.orders(), "times", 2, "answer", "SYSTEM_BUSY"));
        Order order = shop.place("tea", 1);
        broker.assertSent(places.orders(), "placed", order.id(), 1);
    }

    @Test
    void paidOrderIsShipped() throws Exception {
        shop.stock.add("tea", 3);
        Order order = shop.place("tea", 2);
        assertEquals(Orders.State.PAID, shop.pay(order));
        broker.waitFor(places.orders(), "shipped");
        assertEquals(1, shop.stock.count("tea"));
        assertTrue(broker.transactions().isEmpty());
    }

    @Test
    void declinedPaymentIsNotTold() throws Exception {
        answer = Bank.Charge.DECLINED;
        Order order = shop.place("tea", 1);
        assertEquals(Orders.State.PLACED, shop.pay(order));
        broker.advance(Duration.ofMinutes(5));
        assertTrue(broker.transactions().isEmpty());
        broker.assertSent(places.orders(), "paid", order.id(), 0);
    }

    @Test
    void pendingPaymentIsAskedAbout() throws Exception {
        answer = Bank.Charge.PENDING;
        Order order = shop.place("tea", 1);
        shop.pay(order);
        broker.advance(Duration.ofMinutes(2));
        JsonObject payment = broker.transactions().get(0).getAsJsonObject();
        assertTrue(payment.get("check_count").getAsInt() > 0);

        assertTrue(shop.orders.pay(order.id(), payments.get(order.id())));
        broker.advance(Duration.ofMinutes(2));
        assertTrue(broker.transactions().isEmpty());
        broker.assertSent(places.orders(), "paid", order.id(), 1);
    }

    @Test
    void lostCommitIsMadeGood() throws Exception {
        int lost = broker.addFault(Map.of("on", "end_transaction", "answer", "DROP"));
        Order order = shop.place("tea", 1);
        assertEquals(Orders.State.PAID, shop.pay(order));
        broker.waitForFault(lost);
        broker.assertSent(places.orders(), "paid", order.id(), 0);
        broker.advance(Duration.ofMinutes(2));
        broker.assertSent(places.orders(), "paid", order.id(), 1);
    }

    @Test
    void orderWaitsForStock() throws Exception {
        broker.freeze();
        Order order = shop.place("tea", 1);
        shop.pay(order);
        broker.waitFor(places.orders(), "paid");
        broker.waitConsumed(places.warehouse());
        assertEquals(1, tries());
        int[][] expected = {{9, 1}, {1, 2}, {29, 2}, {1, 3}};
        for (int[] step : expected) {
            broker.advance(Duration.ofSeconds(step[0]));
            assertEquals(step[1], tries());
        }
        shop.stock.add("tea", 1);
        broker.advance(Duration.ofMinutes(1));
        broker.assertSent(places.orders(), "shipped", order.id(), 1);
        assertTrue(broker.deadLetters(places.warehouse()).isEmpty());
    }

    @Test
    void orderThatCannotBeShippedIsDeadLetter() throws Exception {
        Order order = shop.place("tea", 1);
        shop.pay(order);
        broker.waitFor(places.orders(), "paid");
        broker.waitConsumed(places.warehouse());
        broker.advance(Duration.ofMinutes(2));
        JsonObject givenUp = broker.deadLetters(places.warehouse()).get(0).getAsJsonObject();
        assertEquals(order.id(), givenUp.getAsJsonArray("keys").get(0).getAsString());
        assertEquals(4, tries());
    }

    @Test
    void unpaidOrderIsCancelled() throws Exception {
        Order order = shop.place("tea", 1);
        broker.advance(Duration.ofMinutes(29));
        assertEquals(Orders.State.PLACED, shop.orders.state(order.id()));
        broker.advance(Duration.ofMinutes(2));
        assertEquals(Orders.State.CANCELLED, shop.orders.state(order.id()));
        broker.assertSent(places.orders(), "cancelled", order.id(), 1);
    }

    @Test
    void paidOrderIsNotCancelled() throws Exception {
        Order order = shop.place("tea", 1);
        shop.pay(order);
        broker.advance(Duration.ofMinutes(31));
        assertEquals(Orders.State.PAID, shop.orders.state(order.id()));
        broker.assertSent(places.orders(), "cancelled", order.id(), 0);
    }

    /** Returns how often the warehouse has sent an order back. */
    private int tries() {
        return broker.requests("send_back", places.warehouse()).size();
    }
}
