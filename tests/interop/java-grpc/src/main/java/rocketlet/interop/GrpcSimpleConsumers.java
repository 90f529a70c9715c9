package rocketlet.interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Consumers that ask for messages; what they have received is known by its number. */
final class GrpcSimpleConsumers {
    private static final int AWAIT_MS = 5_000;

    private final Named<Running> consumers = new Named<>("simple consumer");

    private record Running(SimpleConsumer consumer, List<MessageView> messages) {
        synchronized Map<String, Object> keep(MessageView message) {
            Map<String, Object> fields = GrpcValues.view(message);
            fields.put("number", messages.size());
            messages.add(message);
            return fields;
        }

        synchronized MessageView get(int number) {
            return messages.get(number);
        }
    }

    private interface Act {
        void on(MessageView message) throws ClientException;
    }

    @Command("simple.start")
    Object start(Arguments arguments) throws Exception {
        SimpleConsumer consumer = GrpcValues.PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(GrpcValues.configuration(arguments))
                .setConsumerGroup(arguments.text("group"))
                .setAwaitDuration(Duration.ofMillis(arguments.number("awaitMs", AWAIT_MS)))
                .setSubscriptionExpressions(GrpcValues.subscriptions(arguments))
                .build();
        consumers.put(arguments, new Running(consumer, new ArrayList<>()));
        return null;
    }

    @Command("simple.receive")
    Object receive(Arguments arguments) throws Exception {
        Running running = consumers.get(arguments);
        Duration invisible = Duration.ofMillis(arguments.number("invisibleMs"));
        List<MessageView> messages = running.consumer().receive(arguments.count("count", 32), invisible);
        return Map.of("messages", messages.stream().map(running::keep).toList());
    }

    @Command("simple.ack")
    Object ack(Arguments arguments) {
        Running running = consumers.get(arguments);
        return each(arguments, running.consumer()::ack);
    }

    @Command("simple.change")
    Object change(Arguments arguments) {
        Duration invisible = Duration.ofMillis(arguments.number("invisibleMs"));
        SimpleConsumer consumer = consumers.get(arguments).consumer();
        return each(arguments, message -> consumer.changeInvisibleDuration(message, invisible));
    }

    private Object each(Arguments arguments, Act act) {
        Running running = consumers.get(arguments);
        List<Object> results = new ArrayList<>();
        arguments.elements("numbers").forEach(number -> results.add(GrpcValues.attempt(() -> {
            act.on(running.get(number.getAsInt()));
            return Map.of();
        })));
        return Map.of("results", results);
    }

    @Command("simple.stop")
    Object stop(Arguments arguments) throws Exception {
        consumers.remove(arguments).consumer().close();
        return null;
    }
}
