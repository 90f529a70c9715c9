package rocketlet.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** Keeps every delivery, in order, with the time it came; it refuses each message a given number of times. */
final class Recorder {
    private final List<Map<String, Object>> deliveries = new ArrayList<>();
    private final int failures;

    Recorder(int failures) {
        this.failures = failures;
    }

    MessageListenerConcurrently concurrently() {
        return (messages, context) -> accepts(messages)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
    }

    MessageListenerOrderly orderly() {
        return (messages, context) -> accepts(messages)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
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
