package rocketlet.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.message.MessageView;

/** What a client was handed, in order, for a test that waits for it. */
final class GrpcDeliveries {
    private final List<Map<String, Object>> messages = new ArrayList<>();

    synchronized void add(MessageView message) {
        messages.add(GrpcValues.view(message));
        notifyAll();
    }

    /** Returns those from a number on, once there are so many in all or the time is over. */
    synchronized Object await(Arguments arguments) throws InterruptedException {
        int count = arguments.count("count", 0);
        long deadline = System.currentTimeMillis() + arguments.number("timeoutMs", 10_000);
        for (long left = 1; messages.size() < count && left > 0; left = deadline - System.currentTimeMillis()) {
            wait(left);
        }
        int from = Math.min(arguments.count("from", 0), messages.size());
        return Map.of("messages", List.copyOf(messages.subList(from, messages.size())));
    }
}
