package rocketlet.interop;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Load for benchmarks at a given rate; answers how long messages took. */
final class Pace {
    private static final int WARM_UP = -1;

    /** Messages by number: how long each took, and how many are outstanding. */
    private static final class Ledger {
        private final long[] nanos;
        private final int uncounted;
        private final CountDownLatch warm;
        private final CountDownLatch outstanding;
        private final CountDownLatch first = new CountDownLatch(1);
        private final AtomicLong failures = new AtomicLong();

        Ledger(int total, int uncounted) {
            this.uncounted = uncounted;
            warm = new CountDownLatch(uncounted);
            nanos = new long[total];
            outstanding = new CountDownLatch(total);
        }

        synchronized void took(int number, long time) {
            if (number == WARM_UP) {
                first.countDown();
            } else if (nanos[number] == 0) {
                nanos[number] = Math.max(1, time);
                if (number < uncounted) {
                    warm.countDown();
                }
                outstanding.countDown();
            }
        }
    }

    /**
     * Sends {@code rate} messages a second for some seconds, and tells how long each took: until it was answered or,
     * with {@code consumes}, until a push consumer of this process had it. As many as in a second are sent before, which
     * are not counted and warm both ends up: the clock begins when all of them are through. One that is to be sent while
     * those of a whole second are on their way waits, and its time runs.
     */
    @Command("load.pace")
    static Object pace(Arguments arguments) throws Exception {
        int rate = arguments.count("rate", 1_000);
        int total = rate * (arguments.count("seconds", 10) + 1);
        boolean consumes = arguments.flag("consumes");
        Ledger ledger = new Ledger(total, rate);
        DefaultMQProducer producer = Load.Plan.of(arguments).producer();
        producer.start();
        DefaultMQPushConsumer consumer = consumes ? watch(arguments, producer, ledger) : null;
        try {
            Semaphore permits = new Semaphore(rate);
            long begun = System.nanoTime();
            for (int number = 0; number < total; number++) {
                if (number == rate) {
                    ledger.warm.await();
                    begun = System.nanoTime() - 1_000_000_000L;
                }
                await(begun + number * 1_000_000_000L / rate);
                Message message = message(arguments, number);
                SendCallback callback = callback(number, ledger, consumes, permits);
                permits.acquire();
                producer.send(message, callback);
            }
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("complete", ledger.outstanding.await(60, TimeUnit.SECONDS));
            fields.put("failed", ledger.failures.get());
            fields.put("sent", total);
            Load.putTimes(fields, Arrays.copyOfRange(ledger.nanos, rate, total), total - rate);
            return fields;
        } finally {
            producer.shutdown();
            if (consumer != null) {
                consumer.shutdown();
            }
        }
    }

    private static void await(long due) {
        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private static Message message(Arguments arguments, int number) {
        byte[] body = new byte[arguments.count("bodyBytes", 128)];
        ByteBuffer.wrap(body).putLong(System.nanoTime()).putInt(number);
        return new Message(arguments.text("topic"), body);
    }

    private static SendCallback callback(int number, Ledger ledger, boolean consumes, Semaphore permits) {
        long begun = System.nanoTime();
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                permits.release();
                if (!consumes) {
                    ledger.took(number, System.nanoTime() - begun);
                }
            }

            @Override
            public void onException(Throwable error) {
                permits.release();
                ledger.failures.incrementAndGet();
                ledger.took(number, System.nanoTime() - begun);
            }
        };
    }

    /** Starts a consumer of what is sent from now on; returns when it gets messages. */
    private static DefaultMQPushConsumer watch(Arguments arguments, DefaultMQProducer producer, Ledger ledger)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName(Clients.instance("pace-" + System.nanoTime()));
        consumer.subscribe(arguments.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                long sent = body.getLong();
                ledger.took(body.getInt(), now - sent);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        producer.send(message(arguments, WARM_UP)); // makes the topic
        consumer.start();
        do {
            producer.send(message(arguments, WARM_UP));
        } while (!ledger.first.await(100, TimeUnit.MILLISECONDS));
        return consumer;
    }
}
