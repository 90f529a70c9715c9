package rocketlet.interop;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers: send one by one, at once with callbacks, one-way or as a batch; to any, a given or a selected queue. */
final class Producers {
    private static final MessageQueueSelector BY_NUMBER =
            (queues, message, number) -> queues.get(Math.floorMod((Integer) number, queues.size()));

    private final Named<DefaultMQProducer> producers = new Named<>("producer");

    @Command("producer.start")
    Object start(Arguments arguments) throws Exception {
        String group = arguments.text("group", arguments.text("name"));
        DefaultMQProducer producer =
                Clients.addressed(new DefaultMQProducer(group, Clients.signer(arguments)), arguments);
        producer.setSendMsgTimeout(Clients.ANSWER_LIMIT_MS);
        Beans.apply(producer, arguments.object("settings")).start();
        producers.put(arguments, producer);
        return Map.of("clientId", producer.buildMQClientId());
    }

    @Command("producer.send")
    Object send(Arguments arguments) throws Exception {
        DefaultMQProducer producer = producers.get(arguments);
        List<Message> messages = messages(arguments);
        return switch (arguments.text("mode", "sync")) {
            case "sync" -> sendInTurn(producer, messages, arguments);
            case "async" -> sendTogether(producer, messages, arguments);
            case "oneway" -> sendOneWay(producer, messages, arguments);
            case "batch" -> Map.of("results", List.of(Json.sent(sendBatch(producer, messages, arguments))));
            default -> throw new IllegalArgumentException("mode is sync, async, oneway or batch");
        };
    }

    private static List<Message> messages(Arguments arguments) throws ReflectiveOperationException {
        List<Message> messages = new ArrayList<>();
        for (Arguments fields : arguments.objects("messages")) {
            messages.add(Json.parseMessage(arguments.text("topic"), fields));
        }
        return messages;
    }

    private static Object sendInTurn(DefaultMQProducer producer, List<Message> messages, Arguments arguments) {
        List<Object> results = new ArrayList<>();
        for (Message message : messages) {
            try {
                results.add(Json.sent(sendOne(producer, message, arguments)));
            } catch (Exception error) {
                results.add(Map.of("error", Json.failure(error)));
            }
        }
        return Map.of("results", results);
    }

    private static SendResult sendOne(DefaultMQProducer producer, Message message, Arguments arguments)
            throws Exception {
        if (arguments.has("queue")) {
            return producer.send(message, Json.parseQueue(arguments.object("queue")));
        }
        if (arguments.has("selector")) {
            return producer.send(message, BY_NUMBER, arguments.count("selector", 0));
        }
        return producer.send(message);
    }

    private static Object sendTogether(DefaultMQProducer producer, List<Message> messages, Arguments arguments)
            throws Exception {
        List<Waiting> waiting = new ArrayList<>();
        for (Message message : messages) {
            Waiting one = new Waiting();
            waiting.add(one);
            if (arguments.has("queue")) {
                producer.send(message, Json.parseQueue(arguments.object("queue")), one);
            } else if (arguments.has("selector")) {
                producer.send(message, BY_NUMBER, arguments.count("selector", 0), one);
            } else {
                producer.send(message, one);
            }
        }
        List<Object> results = new ArrayList<>();
        for (Waiting one : waiting) {
            results.add(one.answer.get(30, TimeUnit.SECONDS));
        }
        return Map.of("results", results);
    }

    private static Object sendOneWay(DefaultMQProducer producer, List<Message> messages, Arguments arguments)
            throws Exception {
        for (Message message : messages) {
            if (arguments.has("queue")) {
                producer.sendOneway(message, Json.parseQueue(arguments.object("queue")));
            } else if (arguments.has("selector")) {
                producer.sendOneway(message, BY_NUMBER, arguments.count("selector", 0));
            } else {
                producer.sendOneway(message);
            }
        }
        return Map.of("results", List.of());
    }

    private static SendResult sendBatch(DefaultMQProducer producer, List<Message> messages, Arguments arguments)
            throws Exception {
        return arguments.has("queue")
                ? producer.send(messages, Json.parseQueue(arguments.object("queue"))) : producer.send(messages);
    }

    @Command("producer.queues")
    Object queues(Arguments arguments) throws Exception {
        List<MessageQueue> queues = producers.get(arguments).fetchPublishMessageQueues(arguments.text("topic"));
        return Map.of("queues", queues.stream().map(Json::queue).toList());
    }

    /** Recalls a timer message; by reflection, since clients before 5.x cannot. */
    @Command("producer.recall")
    Object recall(Arguments arguments) throws Exception {
        DefaultMQProducer producer = producers.get(arguments);
        var method = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class);
        try {
            Object id = method.invoke(producer, arguments.text("topic"), arguments.text("handle"));
            return Map.of("msgId", id);
        } catch (InvocationTargetException error) {
            return Map.of("error", Json.failure(error.getCause()));
        }
    }

    @Command("producer.stop")
    Object stop(Arguments arguments) throws Exception {
        Clients.stop(producers.remove(arguments), DefaultMQProducer::shutdown);
        return null;
    }

    /** The outcome of one asynchronous send, as JSON. */
    private static final class Waiting implements SendCallback {
        private final CompletableFuture<Map<String, Object>> answer = new CompletableFuture<>();

        @Override
        public void onSuccess(SendResult result) {
            answer.complete(Json.sent(result));
        }

        @Override
        public void onException(Throwable error) {
            answer.complete(Map.of("error", Json.failure(error)));
        }
    }
}
