package rocketlet.interop;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Producers of all kinds of messages; one with the property "outcome" is sent in a transaction, which ends so. */
final class GrpcProducers {
    private static final long ANSWER_LIMIT_S = 30;

    private final Named<Running> producers = new Named<>("producer");

    /** A producer, and what the broker has asked about: a message says itself what it is answered, in "checked". */
    private record Running(Producer producer, GrpcDeliveries asked) {
    }

    @Command("producer.start")
    Object start(Arguments arguments) throws Exception {
        GrpcDeliveries asked = new GrpcDeliveries();
        var builder = GrpcValues.PROVIDER.newProducerBuilder()
                .setClientConfiguration(GrpcValues.configuration(arguments))
                .setTransactionChecker(message -> check(asked, message));
        if (arguments.has("topics")) {
            builder.setTopics(arguments.texts("topics").toArray(String[]::new));
        }
        producers.put(arguments, new Running(builder.build(), asked));
        return null;
    }

    private static TransactionResolution check(GrpcDeliveries asked, MessageView message) {
        asked.add(message);
        return switch (message.getProperties().getOrDefault("checked", "unknown")) {
            case "commit" -> TransactionResolution.COMMIT;
            case "rollback" -> TransactionResolution.ROLLBACK;
            default -> TransactionResolution.UNKNOWN;
        };
    }

    @Command("producer.send")
    Object send(Arguments arguments) {
        Producer producer = producers.get(arguments).producer();
        List<Message> messages = arguments.objects("messages").stream()
                .map(fields -> GrpcValues.message(arguments.text("topic"), fields)).toList();
        return Map.of("results", arguments.text("mode", "sync").equals("async")
                ? sendTogether(producer, messages)
                : messages.stream().map(message -> GrpcValues.attempt(() -> sendOne(producer, message))).toList());
    }

    private static Object sendOne(Producer producer, Message message) throws ClientException {
        String outcome = message.getProperties().get("outcome");
        if (outcome == null) {
            return GrpcValues.receipt(producer.send(message));
        }
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message, transaction);
        if (outcome.equals("commit")) {
            transaction.commit();
        } else if (outcome.equals("rollback")) {
            transaction.rollback();
        }
        return GrpcValues.receipt(receipt);
    }

    private static List<Object> sendTogether(Producer producer, List<Message> messages) {
        List<CompletableFuture<SendReceipt>> answers = messages.stream().map(producer::sendAsync).toList();
        return answers.stream().map(answer -> GrpcValues.attempt(
                () -> GrpcValues.receipt(answer.get(ANSWER_LIMIT_S, TimeUnit.SECONDS)))).toList();
    }

    @Command("producer.checked")
    Object checked(Arguments arguments) throws InterruptedException {
        return producers.get(arguments).asked().await(arguments);
    }

    @Command("producer.recall")
    Object recall(Arguments arguments) {
        Producer producer = producers.get(arguments).producer();
        return GrpcValues.attempt(() -> Map.of("messageId",
                producer.recallMessage(arguments.text("topic"), arguments.text("handle")).getMessageId().toString()));
    }

    @Command("producer.stop")
    Object stop(Arguments arguments) throws Exception {
        producers.remove(arguments).producer().close();
        return null;
    }
}
