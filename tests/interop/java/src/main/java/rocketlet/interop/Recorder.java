package rocketlet.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Keeps every delivery, in order, with the time it came; it refuses each message a given number of times, in a given
 * way: "later", "null", "exception", or "hang" for a listener that does not come back. An ordered listener may have a
 * script: its answers by name, one for each call; without automatic commit they count as they are.
 */
final class Recorder {
    private final List<Map<String, Object>> deliveries = new ArrayList<>();
    private final int failures;
    private final String failure;
    private final int delayLevel;
    private final Queue<ConsumeOrderlyStatus> script = new ConcurrentLinkedQueue<>();
    private final boolean commits;

    Recorder(Arguments arguments) {
        failures = arguments.count("failures", 0);
        failure = arguments.text("failure", "later");
        delayLevel = arguments.count("delayLevel", 0);
        arguments.texts("script").forEach(answer -> script.add(ConsumeOrderlyStatus.valueOf(answer)));
        commits = !arguments.flag("manual");
    }

    MessageListenerConcurrently concurrently() {
        return (messages, context) -> {
            if (accepts(messages)) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            context.setDelayLevelWhenNextConsume(delayLevel);
            return fail();
        };
    }

    private ConsumeConcurrentlyStatus fail() {
        switch (failure) {
            case "null":
                return null;
            case "exception":
                throw new IllegalStateException("refused on purpose");
            case "hang":
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                }
                return null;
            default:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
    }

    MessageListenerOrderly orderly() {
        return (messages, context) -> {
            context.setAutoCommit(commits);
            ConsumeOrderlyStatus answer = accepts(messages)
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            return script.isEmpty() ? answer : script.remove();
        };
    }

    /** The deliveries from an index on, once there are count of them in all or the time is over. */
    synchronized List<Map<String, Object>> await(int from, int count, long timeoutMs) throws InterruptedException {
        long deadline = System.currentTimeMillis() + timeoutMs;
        long left = timeoutMs;
        while (deliveries.size() < count && left > 0) {
            wait(left);
            left = deadline - System.currentTimeMillis();
        }
        return new ArrayList<>(deliveries.subList(Math.min(from, deliveries.size()), deliveries.size()));
    }

    private synchronized boolean accepts(List<MessageExt> messages) {
        boolean accepted = true;
        for (MessageExt message : messages) {
            Map<String, Object> delivery = Json.received(message);
            delivery.put("receivedAt", System.currentTimeMillis());
            deliveries.add(delivery);
            accepted &= message.getReconsumeTimes() >= failures;
        }
        notifyAll();
        return accepted;
    }
}
