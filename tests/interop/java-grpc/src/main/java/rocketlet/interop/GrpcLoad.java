package rocketlet.interop;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Load for benchmarks: as fast as it is answered. */
final class GrpcLoad {
    private static final Duration LEASE = Duration.ofSeconds(60);
    private static final Duration POLL = Duration.ofSeconds(5);
    private static final int MOST_AT_ONCE = 32;

    /** Sends {@code warmup} messages that are not counted, then {@code count} that are, with so many in flight. */
    @Command("load.send")
    static Object send(Arguments arguments) throws Exception {
        String topic = arguments.text("topic");
        byte[] body = new byte[arguments.count("bodyBytes", 128)];
        body[0] = 1;
        Message message = GrpcValues.PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build();
        int inFlight = arguments.count("inFlight", 1);
        try (Producer producer = GrpcValues.PROVIDER.newProducerBuilder()
                .setClientConfiguration(GrpcValues.configuration(arguments)).setTopics(topic).build()) {
            run(producer, message, inFlight, arguments.count("warmup", 0));
            return run(producer, message, inFlight, arguments.count("count", 10_000));
        }
    }

    private static Map<String, Object> run(Producer producer, Message message, int inFlight, int count)
            throws InterruptedException {
        AtomicLong failures = new AtomicLong();
        AtomicReference<String> firstFailure = new AtomicReference<>();
        Semaphore permits = new Semaphore(inFlight);
        long started = System.nanoTime();
        for (int sent = 0; sent < count; sent++) {
            permits.acquire();
            producer.sendAsync(message).whenComplete((receipt, error) -> {
                if (error != null) {
                    failures.incrementAndGet();
                    firstFailure.compareAndSet(null, String.valueOf(error));
                }
                permits.release();
            });
        }
        permits.acquire(inFlight);
        double seconds = (System.nanoTime() - started) / 1e9;
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("sent", count);
        told.put("failed", failures.get());
        told.put("firstFailure", firstFailure.get());
        told.put("perSecond", Math.round(count / seconds));
        return told;
    }

    /** Receives and acknowledges a backlog of {@code count} messages, batch by batch; the rate starts at the first. */
    @Command("load.receive")
    static Object receive(Arguments arguments) throws Exception {
        long count = arguments.number("count");
        try (SimpleConsumer consumer = GrpcValues.PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(GrpcValues.configuration(arguments))
                .setConsumerGroup(arguments.text("group"))
                .setAwaitDuration(POLL)
                .setSubscriptionExpressions(Map.of(arguments.text("topic"), FilterExpression.SUB_ALL))
                .build()) {
            long received = 0;
            long empty = 0;
            long started = System.nanoTime();
            while (received < count && empty < 3) {
                List<MessageView> messages = consumer.receive(MOST_AT_ONCE, LEASE);
                empty = messages.isEmpty() ? empty + 1 : 0;
                CompletableFuture<?>[] acks =
                        messages.stream().map(consumer::ackAsync).toArray(CompletableFuture<?>[]::new);
                CompletableFuture.allOf(acks).get(30, TimeUnit.SECONDS);
                received += messages.size();
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            return Map.of("received", received, "complete", received >= count,
                    "perSecond", Math.round(received / seconds));
        }
    }
}
