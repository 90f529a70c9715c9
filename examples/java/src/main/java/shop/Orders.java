package shop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The table of orders; a real shop has a database here. */
final class Orders {
    enum State { PLACED, PAID, CANCELLED }

    /** How far an order is, and the payment by which it got there. */
    private record Entry(State state, String payment) {}

    private static final Entry PLACED = new Entry(State.PLACED, null);
    private final Map<String, Entry> entries = new ConcurrentHashMap<>();

    void add(Order order) {
        entries.put(order.id(), PLACED);
    }

    State state(String id) {
        return entries.get(id).state();
    }

    boolean isPaidBy(String id, String payment) {
        return payment.equals(entries.get(id).payment());
    }

    /** Takes note that an order is paid; tells whether it was waiting for that. */
    boolean pay(String id, String payment) {
        return entries.replace(id, PLACED, new Entry(State.PAID, payment));
    }

    /** Cancels an order unless it is paid; tells whether it is cancelled now. */
    boolean cancel(String id) {
        entries.replace(id, PLACED, new Entry(State.CANCELLED, null));
        return state(id) == State.CANCELLED;
    }
}
