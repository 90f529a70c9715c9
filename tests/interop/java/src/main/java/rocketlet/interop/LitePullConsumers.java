package rocketlet.interop;

import com.google.gson.JsonElement;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers, by subscription or with assigned queues. */
final class LitePullConsumers {
    private final Named<DefaultLitePullConsumer> consumers = new Named<>("lite pull consumer");

    @Command("lite.start")
    Object start(Arguments arguments) throws Exception {
        DefaultLitePullConsumer consumer =
                Clients.addressed(new DefaultLitePullConsumer(arguments.text("group")), arguments);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        Beans.apply(consumer, arguments.object("settings"));
        for (Map.Entry<String, JsonElement> entry : arguments.object("subscriptions").json().entrySet()) {
            consumer.subscribe(entry.getKey(), entry.getValue().getAsString());
        }
        consumer.start();
        consumers.put(arguments, consumer);
        return Map.of("clientId", consumer.buildMQClientId());
    }

    /** Polls until there are count messages or the time is over. */
    @Command("lite.poll")
    Object poll(Arguments arguments) throws Exception {
        DefaultLitePullConsumer consumer = consumers.get(arguments);
        long deadline = System.currentTimeMillis() + arguments.number("timeoutMs", 10_000);
        int count = arguments.count("count", 1);
        List<MessageExt> messages = new ArrayList<>();
        for (long left = 1; messages.size() < count && left > 0; left = deadline - System.currentTimeMillis()) {
            messages.addAll(consumer.poll(Math.max(1, deadline - System.currentTimeMillis())));
        }
        return Map.of("messages", messages.stream().map(Json::received).toList());
    }

    @Command("lite.assign")
    Object assign(Arguments arguments) {
        consumers.get(arguments).assign(assigned(arguments));
        return null;
    }

    @Command("lite.queues")
    Object queues(Arguments arguments) throws Exception {
        return Map.of("queues", Clients.sorted(consumers.get(arguments).fetchMessageQueues(arguments.text("topic"))));
    }

    @Command("lite.seek")
    Object seek(Arguments arguments) throws Exception {
        consumers.get(arguments).seek(Json.parseQueue(arguments.object("queue")), arguments.number("offset"));
        return null;
    }

    @Command("lite.pause")
    Object pause(Arguments arguments) {
        DefaultLitePullConsumer consumer = consumers.get(arguments);
        if (arguments.flag("resume")) {
            consumer.resume(assigned(arguments));
        } else {
            consumer.pause(assigned(arguments));
        }
        return null;
    }

    @Command("lite.commit")
    Object commit(Arguments arguments) {
        consumers.get(arguments).commitSync();
        return null;
    }

    @Command("lite.committed")
    Object committed(Arguments arguments) throws Exception {
        return Map.of("offset", consumers.get(arguments).committed(Json.parseQueue(arguments.object("queue"))));
    }

    @Command("lite.stop")
    Object stop(Arguments arguments) throws Exception {
        Clients.stop(consumers.remove(arguments), DefaultLitePullConsumer::shutdown);
        return null;
    }

    private static List<MessageQueue> assigned(Arguments arguments) {
        return arguments.objects("queues").stream().map(Json::parseQueue).toList();
    }
}
