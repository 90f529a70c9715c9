package rocketlet.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Push consumers that keep what they are handed, also after their stop. */
final class GrpcPushConsumers {
    private final Named<PushConsumer> consumers = new Named<>("push consumer");
    private final Map<String, GrpcDeliveries> deliveries = new ConcurrentHashMap<>();

    /** Refuses each message as often as the test wants, and takes its time for the first one of each. */
    private record Listener(int failures, long hangMs, GrpcDeliveries deliveries) {
        ConsumeResult consume(MessageView message) {
            deliveries.add(message);
            if (hangMs > 0 && message.getDeliveryAttempt() == 1) {
                hang();
            }
            return message.getDeliveryAttempt() <= failures ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        }

        private void hang() {
            try {
                Thread.sleep(hangMs);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Command("push.start")
    Object start(Arguments arguments) throws Exception {
        GrpcDeliveries kept = new GrpcDeliveries();
        Listener listener = new Listener(arguments.count("failures", 0), arguments.number("hangMs", 0), kept);
        deliveries.put(arguments.text("name"), kept);
        consumers.put(arguments, GrpcValues.PROVIDER.newPushConsumerBuilder()
                .setClientConfiguration(GrpcValues.configuration(arguments))
                .setConsumerGroup(arguments.text("group"))
                .setSubscriptionExpressions(GrpcValues.subscriptions(arguments))
                .setConsumptionThreadCount(arguments.count("threads", 4))
                .setMessageListener(listener::consume)
                .build());
        return null;
    }

    @Command("push.received")
    Object received(Arguments arguments) throws InterruptedException {
        return deliveries.get(arguments.text("name")).await(arguments);
    }

    @Command("push.stop")
    Object stop(Arguments arguments) throws Exception {
        consumers.remove(arguments).close();
        return null;
    }
}
