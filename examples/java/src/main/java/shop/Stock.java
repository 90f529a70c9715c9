package shop;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** What is on the shelves, and what has left them. */
final class Stock {
    private final Map<String, Integer> pieces = new HashMap<>();
    private final Set<String> shipped = new HashSet<>();

    synchronized void add(String item, int count) {
        pieces.merge(item, count, Integer::sum);
    }

    synchronized int count(String item) {
        return pieces.getOrDefault(item, 0);
    }

    /** Takes what was ordered off the shelf, once; tells whether there was enough of it. */
    synchronized boolean take(Order order) {
        if (shipped.contains(order.id())) {
            return true;
        }
        if (count(order.item()) < order.quantity()) {
            return false;
        }
        pieces.merge(order.item(), -order.quantity(), Integer::sum);
        return shipped.add(order.id());
    }
}
