package rocketlet.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The running clients of one kind under the names that the test gave them. */
final class Named<T> {
    private final Map<String, T> items = new ConcurrentHashMap<>();
    private final String kind;

    Named(String kind) {
        this.kind = kind;
    }

    void put(Arguments arguments, T item) {
        String name = arguments.text("name");
        if (items.putIfAbsent(name, item) != null) {
            throw new IllegalArgumentException(kind + " " + name + " is already running");
        }
    }

    T get(Arguments arguments) {
        return existing(arguments.text("name"), items.get(arguments.text("name")));
    }

    T remove(Arguments arguments) {
        return existing(arguments.text("name"), items.remove(arguments.text("name")));
    }

    private T existing(String name, T item) {
        if (item == null) {
            throw new IllegalArgumentException(kind + " " + name + " is not running");
        }
        return item;
    }
}
