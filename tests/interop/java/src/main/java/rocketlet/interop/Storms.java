package rocketlet.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * Producers that send without a pause until a send fails, which is when somebody kills the broker, and that remember
 * where each answered message was stored. Nothing is sent a second time. The test numbers the runs of a producer.
 *
 * <p>Message number n has a body made of its name and n, the tag t(n mod 3) and the key k(n); every tenth request is a
 * batch of n mod 7 + 2 messages.
 */
final class Storms {
    private static final long START_LIMIT_MS = 20_000;
    /** The client takes note of some requests that died with their connection when their time is over only. */
    private static final int ANSWER_LIMIT_MS = 2_000;

    private final Named<Storm> storms = new Named<>("storm");

    @Command("storm.start")
    Object start(Arguments arguments) throws Exception {
        String name = arguments.text("name");
        DefaultMQProducer producer = new DefaultMQProducer(name);
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setInstanceName(Clients.instance(name));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(ANSWER_LIMIT_MS);
        producer.start();
        storms.put(arguments, new Storm(producer));
        return null;
    }

    @Command("storm.run")
    Object run(Arguments arguments) throws Exception {
        return storms.get(arguments).run(arguments);
    }

    /** Returns once a run has so many answers, has ended, or the time is over. */
    @Command("storm.await")
    Object await(Arguments arguments) throws Exception {
        Storm storm = storms.get(arguments);
        int run = arguments.count("run", 0);
        int count = arguments.count("count", 1);
        return Map.of("reached", Await.until(arguments.number("timeoutMs"), () -> storm.hasReached(run, count)));
    }

    @Command("storm.stop")
    Object stop(Arguments arguments) throws Exception {
        DefaultMQProducer producer = storms.remove(arguments).producer;
        Clients.stop(producer, DefaultMQProducer::shutdown);
        return null;
    }

    /** One producer, whose message numbers go on from run to run. */
    private static final class Storm {
        private final DefaultMQProducer producer;
        private volatile Outcome outcome = new Outcome(0, 0);
        private int next;

        Storm(DefaultMQProducer producer) {
            this.producer = producer;
        }

        /** Sends to the queues in turn; the first failure after an answer ends the run. */
        Object run(Arguments arguments) throws Exception {
            List<MessageQueue> queues = new ArrayList<>();
            arguments.objects("queues").forEach(queue -> queues.add(Json.parseQueue(queue)));
            outcome = new Outcome(arguments.count("run", 0), arguments.count("inFlight", 32));
            int first = next;
            String name = arguments.text("name");
            Await.until(START_LIMIT_MS, () -> isAnswered(queues.get(0), name));
            for (int request = 0; outcome.failure.get() == null; request++) {
                MessageQueue queue = queues.get(request % queues.size());
                int number = next;
                next += request % 10 == 9 ? number % 7 + 2 : 1;
                outcome.permits.acquire();
                send(queue, number, next - number, name);
            }
            outcome.permits.tryAcquire(outcome.inFlight, START_LIMIT_MS, TimeUnit.MILLISECONDS);
            return outcome.describe(first, next);
        }

        boolean hasReached(int run, int count) {
            Outcome current = outcome;
            return current.run == run && current.hasReached(count);
        }

        /** Sends one message; the connection may still be that to the broker before, and fail. */
        private boolean isAnswered(MessageQueue queue, String name) throws InterruptedException {
            int number = next++;
            outcome.permits.acquire();
            try {
                outcome.acknowledged(number, 1, producer.send(message(queue.getTopic(), name, number), queue));
                return true;
            } catch (MQClientException | RemotingException | MQBrokerException | IllegalStateException refused) {
                outcome.permits.release();
                return false;
            }
        }

        private void send(MessageQueue queue, int number, int count, String name) {
            Outcome outcome = this.outcome;
            try {
                List<Message> messages = new ArrayList<>();
                for (int each = number; each < number + count; each++) {
                    messages.add(message(queue.getTopic(), name, each));
                }
                SendCallback callback = outcome.callback(number, count);
                if (count == 1) {
                    producer.send(messages.get(0), queue, callback);
                } else {
                    producer.send(messages, queue, callback);
                }
            } catch (Exception error) {
                outcome.failed(error);
            }
        }

        private static Message message(String topic, String name, int number) {
            byte[] body = (name + "-" + number + " ").repeat(number % 40 + 1).getBytes(StandardCharsets.US_ASCII);
            return new Message(topic, "t" + number % 3, "k" + number, body);
        }
    }

    /** What became of the messages of one run. */
    private static final class Outcome {
        private final int run;
        private final int inFlight;
        private final Semaphore permits;
        private final AtomicReference<Throwable> failure = new AtomicReference<>();
        private final Map<Integer, Map<String, Object>> stored = new TreeMap<>();
        private int answered;

        Outcome(int run, int inFlight) {
            this.run = run;
            this.inFlight = inFlight;
            this.permits = new Semaphore(inFlight);
        }

        SendCallback callback(int number, int count) {
            return new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    acknowledged(number, count, result);
                }

                @Override
                public void onException(Throwable error) {
                    failed(error);
                }
            };
        }

        private synchronized void acknowledged(int number, int count, SendResult result) {
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                Map<String, Object> place = new HashMap<>();
                place.put("number", number);
                place.put("count", count);
                place.put("topic", result.getMessageQueue().getTopic());
                place.put("queueId", result.getMessageQueue().getQueueId());
                place.put("queueOffset", result.getQueueOffset());
                stored.put(number, place);
                answered += count;
            }
            permits.release();
        }

        synchronized boolean hasReached(int count) {
            return answered >= count || failure.get() != null;
        }

        void failed(Throwable error) {
            failure.compareAndSet(null, error);
            permits.release();
        }

        synchronized Map<String, Object> describe(int first, int end) {
            String reason = failure.get() == null ? "" : failure.get().toString();
            return Map.of("first", first, "end", end, "stored", new ArrayList<>(stored.values()), "failure", reason);
        }
    }
}
