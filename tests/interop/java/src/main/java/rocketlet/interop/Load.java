package rocketlet.interop;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Load for benchmarks: a number of messages as fast as the servers take them; answers counts, rates and times. */
final class Load {
    /**
     * What one run sends; a batch above 1 sends batches, an in-flight number above 0 sends asynchronously. With several
     * topics they are T0, T1 …, in turn; with several tags message n has the tag and the property {@code number} n modulo
     * that.
     */
    record Plan(DefaultMQProducer producer, String topic, byte[] body, int batch, int inFlight, int topics,
            int tags, AtomicLong made) {
        static Plan of(Arguments arguments) throws Exception {
            DefaultMQProducer producer = new DefaultMQProducer("interop-load", Clients.signer(arguments));
            producer.setNamesrvAddr(arguments.text("namesrv"));
            producer.setInstanceName(Clients.instance("load-" + System.nanoTime()));
            producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
            Beans.apply(producer, arguments.object("settings"));
            return new Plan(producer, arguments.text("topic"), new byte[arguments.count("bodyBytes", 128)],
                    arguments.count("batch", 1), arguments.count("inFlight", 0), arguments.count("topics", 1),
                    arguments.count("tags", 0), new AtomicLong());
        }

        Message message() {
            if (topics == 1 && tags == 0) {
                return new Message(topic, body);
            }
            long number = made.getAndIncrement();
            Message message = new Message(topics == 1 ? topic : topic + number % topics, body);
            if (tags > 0) {
                message.setTags("tag" + number % tags);
                message.putUserProperty("number", String.valueOf(number % tags));
            }
            return message;
        }
    }

    /** Sends {@code warmup} messages that are not counted, then {@code count} that are. */
    @Command("load.send")
    static Object send(Arguments arguments) throws Exception {
        Plan plan = Plan.of(arguments);
        plan.producer.start();
        try {
            int threads = arguments.count("threads", 1);
            run(plan, threads, arguments.count("warmup", 0));
            return run(plan, threads, arguments.count("count", 10_000));
        } finally {
            plan.producer.shutdown();
        }
    }

    private static Map<String, Object> run(Plan plan, int threads, int count) throws Exception {
        Tally tally = new Tally(count / plan.batch + threads);
        ExecutorService senders = Executors.newFixedThreadPool(threads);
        AtomicLong left = new AtomicLong(count);
        long started = System.nanoTime();
        for (int thread = 0; thread < threads; thread++) {
            senders.execute(() -> sendWhileLeft(plan, left, tally));
        }
        senders.shutdown();
        senders.awaitTermination(10, TimeUnit.MINUTES);
        tally.awaitOutstanding(Math.max(1, plan.inFlight) * (long) threads);
        return tally.report(plan.batch, System.nanoTime() - started);
    }

    private static void sendWhileLeft(Plan plan, AtomicLong left, Tally tally) {
        Semaphore permits = new Semaphore(Math.max(1, plan.inFlight));
        while (left.addAndGet(-plan.batch) >= 0) {
            long started = System.nanoTime();
            try {
                if (plan.inFlight > 0) {
                    permits.acquire();
                    started = System.nanoTime();
                    plan.producer.send(plan.message(), tally.callback(started, permits));
                } else if (plan.batch > 1) {
                    plan.producer.send(Stream.generate(plan::message).limit(plan.batch).toList());
                    tally.done(started);
                } else {
                    plan.producer.send(plan.message());
                    tally.done(started);
                }
            } catch (Exception error) {
                permits.release();
                tally.failed(error);
            }
        }
        permits.acquireUninterruptibly(Math.max(1, plan.inFlight));
        tally.threadDone(Math.max(1, plan.inFlight));
    }

    /** Counts answers and keeps their times. */
    private static final class Tally {
        private final long[] times;
        private final AtomicLong answered = new AtomicLong();
        private final AtomicLong failures = new AtomicLong();
        private final Semaphore finished = new Semaphore(0);
        private volatile String firstFailure;

        Tally(int requests) {
            times = new long[requests];
        }

        void done(long started) {
            times[(int) answered.getAndIncrement()] = System.nanoTime() - started;
        }

        void failed(Throwable error) {
            failures.incrementAndGet();
            if (firstFailure == null) {
                firstFailure = String.valueOf(error);
            }
        }

        SendCallback callback(long started, Semaphore permits) {
            return new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done(started);
                    permits.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed(error);
                    permits.release();
                }
            };
        }

        void threadDone(int permits) {
            finished.release(permits);
        }

        void awaitOutstanding(long permits) {
            finished.acquireUninterruptibly((int) permits);
        }

        Map<String, Object> report(int batch, long nanos) {
            int requests = (int) answered.get();
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("sent", (long) requests * batch);
            fields.put("failed", failures.get() * batch);
            fields.put("firstFailure", firstFailure);
            fields.put("seconds", nanos / 1e9);
            fields.put("perSecond", Math.round(requests * batch / (nanos / 1e9)));
            putTimes(fields, times, requests);
            return fields;
        }
    }

    /** Adds percentiles of so many times in microseconds; the array is sorted. */
    static void putTimes(Map<String, Object> fields, long[] nanos, int count) {
        Arrays.sort(nanos, 0, count);
        for (int permille : new int[] {500, 900, 990, 999, 1000}) {
            int rank = (int) (Math.max(0, count - 1L) * permille / 1000);
            String name = permille == 1000 ? "maxUs" : "p" + (permille % 10 == 0 ? permille / 10 : permille) + "Us";
            fields.put(name, count == 0 ? null : nanos[rank] / 1000);
        }
    }

    /** Consumes a backlog of {@code count} messages with a new push consumer; the rate starts at the first message. */
    @Command("load.consume")
    static Object consume(Arguments arguments) throws Exception {
        long count = arguments.number("count");
        AtomicLong received = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments.text("group"));
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName(Clients.instance("load-" + System.nanoTime()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(arguments.count("batch", 1));
        Beans.apply(consumer, arguments.object("settings"));
        if (arguments.has("sql")) {
            consumer.subscribe(arguments.text("topic"), MessageSelector.bySql(arguments.text("sql")));
        } else {
            consumer.subscribe(arguments.text("topic"), arguments.text("tag", "*"));
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (received.addAndGet(messages.size()) >= count) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            boolean complete = done.await(arguments.number("timeoutMs", 60_000), TimeUnit.MILLISECONDS);
            double seconds = (System.nanoTime() - first.get()) / 1e9;
            return Map.of("received", received.get(), "complete", complete, "seconds", seconds,
                    "perSecond", Math.round(received.get() / seconds));
        } finally {
            consumer.shutdown();
        }
    }
}
