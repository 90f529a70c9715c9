package rocketlet.interop;

import com.google.gson.JsonElement;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers that record what they receive. */
final class PushConsumers {
    private static final long LAST_LISTENER_LIMIT_MS = 10_000;

    private final Named<DefaultMQPushConsumer> consumers = new Named<>("consumer");
    // What a consumer has received can be asked for when it has stopped, too.
    private final Named<Recorder> recorders = new Named<>("consumer");

    @Command("consumer.start")
    Object start(Arguments arguments) throws Exception {
        DefaultMQPushConsumer consumer = Clients.addressed(new DefaultMQPushConsumer(arguments.text("group"),
                Clients.signer(arguments), new AllocateMessageQueueAveragely()), arguments);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        // Else a stop reports offsets without the messages whose listener is about to return, and they come again.
        consumer.setAwaitTerminationMillisWhenShutdown(LAST_LISTENER_LIMIT_MS);
        if (arguments.has("strategy")) {
            var strategy = Beans.strategy(AllocateMessageQueueStrategy.class, arguments.text("strategy"));
            consumer.setAllocateMessageQueueStrategy(Beans.apply(strategy, arguments.object("strategySettings")));
        }
        Beans.apply(consumer, arguments.object("settings"));
        Recorder recorder = new Recorder(arguments);
        if (arguments.flag("orderly")) {
            consumer.registerMessageListener(recorder.orderly());
        } else {
            consumer.registerMessageListener(recorder.concurrently());
        }
        subscribe(consumer, arguments.object("subscriptions"));
        consumer.start();
        consumers.put(arguments, consumer);
        recorders.put(arguments, recorder);
        return Map.of("clientId", consumer.buildMQClientId());
    }

    /** Topic to tag expression; null means all messages, {"sql": …} an SQL92 filter. */
    private static void subscribe(DefaultMQPushConsumer consumer, Arguments subscriptions) throws Exception {
        for (Map.Entry<String, JsonElement> entry : subscriptions.json().entrySet()) {
            JsonElement expression = entry.getValue();
            if (expression.isJsonObject()) {
                String sql = expression.getAsJsonObject().get("sql").getAsString();
                consumer.subscribe(entry.getKey(), MessageSelector.bySql(sql));
            } else {
                consumer.subscribe(entry.getKey(), expression.isJsonNull() ? null : expression.getAsString());
            }
        }
    }

    @Command("consumer.subscribe")
    Object subscribe(Arguments arguments) throws Exception {
        subscribe(consumers.get(arguments), arguments.object("subscriptions"));
        return null;
    }

    @Command("consumer.received")
    Object received(Arguments arguments) throws Exception {
        Recorder recorder = recorders.get(arguments);
        return Map.of("messages", recorder.await(
                arguments.count("from", 0), arguments.count("count", 0), arguments.number("timeoutMs", 10_000)));
    }

    /** The queues that the consumer owns; with a count, waits until it owns that many. */
    @Command("consumer.queues")
    Object queues(Arguments arguments) throws Exception {
        DefaultMQPushConsumer consumer = consumers.get(arguments);
        String topic = arguments.text("topic");
        if (arguments.has("count")) {
            long count = arguments.number("count");
            Await.until(arguments.number("timeoutMs", 10_000), () -> owned(consumer, topic).size() == count);
        }
        return Map.of("queues", Clients.sorted(owned(consumer, topic)));
    }

    /** How far the consumer is in a queue that it owns, once it is at the offset or the time is over. */
    @Command("consumer.progress")
    Object progress(Arguments arguments) throws Exception {
        var store = consumers.get(arguments).getDefaultMQPushConsumerImpl().getOffsetStore();
        MessageQueue queue = Json.parseQueue(arguments.object("queue"));
        long wanted = arguments.number("offset");
        Await.until(arguments.number("timeoutMs", 10_000),
                () -> store.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) >= wanted);
        return Map.of("offset", store.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY));
    }

    private static Set<MessageQueue> owned(DefaultMQPushConsumer consumer, String topic) {
        var table = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
        return table.keySet().stream().filter(queue -> queue.getTopic().equals(topic)).collect(Collectors.toSet());
    }

    @Command("consumer.suspend")
    Object suspend(Arguments arguments) {
        consumers.get(arguments).suspend();
        return null;
    }

    @Command("consumer.resume")
    Object resume(Arguments arguments) {
        consumers.get(arguments).resume();
        return null;
    }

    /** Takes what the listener holds for stuck; the client itself looks after a minute at the earliest. */
    @Command("consumer.expire")
    Object expire(Arguments arguments) {
        DefaultMQPushConsumer consumer = consumers.get(arguments);
        consumer.setConsumeTimeout(0);
        consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().values()
                .forEach(queue -> queue.cleanExpiredMsg(consumer));
        return null;
    }

    @Command("consumer.drop")
    Object drop(Arguments arguments) {
        Clients.drop(consumers.remove(arguments).getDefaultMQPushConsumerImpl().getmQClientFactory());
        return null;
    }

    @Command("consumer.stop")
    Object stop(Arguments arguments) throws Exception {
        Clients.stop(consumers.remove(arguments), DefaultMQPushConsumer::shutdown);
        return null;
    }
}
