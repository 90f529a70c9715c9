package rocketlet.interop;

import java.util.List;
import java.util.concurrent.Callable;
import java.util.function.Supplier;

/** Bounded waits for conditions that the client library does not announce. */
final class Await {
    private static final long STEP_MS = 10;

    private Await() {
    }

    /** Returns whether the condition became true in time; checks at least once. */
    static boolean until(long timeoutMs, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + timeoutMs;
        while (!condition.call()) {
            if (System.currentTimeMillis() >= deadline) {
                return false;
            }
            Thread.sleep(STEP_MS);
        }
        return true;
    }

    /** Returns what there is, once there is as much of it as the arguments say or their time is over. */
    static <T> List<T> enough(Arguments arguments, Supplier<List<T>> items) throws Exception {
        int count = arguments.count("count", 0);
        until(arguments.number("timeoutMs", 10_000), () -> items.get().size() >= count);
        return items.get();
    }
}
