package rocketlet.interop;

import java.util.concurrent.Callable;

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
}
