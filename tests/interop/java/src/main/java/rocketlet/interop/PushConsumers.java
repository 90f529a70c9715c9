package rocketlet.interop;

import com.google.gson.JsonElement;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers that record what they receive. */
final class PushConsumers implements CommandGroup {
    private final Named<Running> consumers = new Named<>("consumer");

    private record Running(DefaultMQPushConsumer consumer, Recorder recorder) {
    }

    @Override
    public Map<String, Command> commands() {
        return Map.of(
                "consumer.start", this::start,
                "consumer.received", this::received,
                "consumer.queues", this::queues,
                "consumer.subscribe", this::subscribe,
                "consumer.suspend", this::suspend,
                "consumer.resume", this::resume,
                "consumer.drop", this::drop,
                "consumer.stop", this::stop);
    }

    private Object start(Arguments arguments) throws Exception {
        String name = arguments.text("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName(arguments.text("instance", Clients.instance(name)));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        if (arguments.has("strategy")) {
            consumer.setAllocateMessageQueueStrategy(
                    Beans.strategy(AllocateMessageQueueStrategy.class, arguments.text("strategy")));
        }
        Beans.apply(consumer, arguments.object("settings"));
        Recorder recorder = new Recorder(arguments.count("failures", 0));
        if (arguments.flag("orderly")) {
            consumer.registerMessageListener(recorder.orderly());
        } else {
            consumer.registerMessageListener(recorder.concurrently());
        }
        subscribe(consumer, arguments.object("subscriptions"));
        consumer.start();
        consumers.put(name, new Running(consumer, recorder));
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

    private Object subscribe(Arguments arguments) throws Exception {
        subscribe(consumers.get(arguments).consumer, arguments.object("subscriptions"));
        return null;
    }

    private Object received(Arguments arguments) throws Exception {
        Recorder recorder = consumers.get(arguments).recorder;
        return Map.of("messages", recorder.await(
                arguments.count("from", 0), arguments.count("count", 0), arguments.number("timeoutMs", 10_000)));
    }

    /** The queues that the consumer owns; with a count, waits until it owns that many. */
    private Object queues(Arguments arguments) throws Exception {
        DefaultMQPushConsumer consumer = consumers.get(arguments).consumer;
        String topic = arguments.text("topic");
        if (arguments.has("count")) {
            long count = arguments.number("count");
            Await.until(arguments.number("timeoutMs", 10_000), () -> owned(consumer, topic).size() == count);
        }
        return Map.of("queues", Clients.sorted(owned(consumer, topic)));
    }

    private static Set<MessageQueue> owned(DefaultMQPushConsumer consumer, String topic) {
        var table = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
        return table.keySet().stream().filter(queue -> queue.getTopic().equals(topic)).collect(Collectors.toSet());
    }

    private Object suspend(Arguments arguments) {
        consumers.get(arguments).consumer.suspend();
        return null;
    }

    private Object resume(Arguments arguments) {
        consumers.get(arguments).consumer.resume();
        return null;
    }

    private Object drop(Arguments arguments) {
        Clients.drop(consumers.remove(arguments).consumer.getDefaultMQPushConsumerImpl().getmQClientFactory());
        return null;
    }

    private Object stop(Arguments arguments) throws Exception {
        var client = consumers.remove(arguments).consumer;
        Clients.stop(client, client::shutdown);
        return null;
    }
}
