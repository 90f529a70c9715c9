package rocketlet.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requesters, and responders that answer "re: " and the body; a held responder answers once it is released. */
final class Requests {
    private static final long RELEASE_LIMIT_S = 30;

    private final Named<DefaultMQProducer> requesters = new Named<>("requester");
    private final Named<Responder> responders = new Named<>("responder");

    @Command("requester.start")
    Object startRequester(Arguments arguments) throws Exception {
        DefaultMQProducer producer = producer(arguments, arguments.text("name"));
        requesters.put(arguments, producer);
        return Map.of("clientId", producer.buildMQClientId());
    }

    private static DefaultMQProducer producer(Arguments arguments, String name) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(name);
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setInstanceName(Clients.instance(name));
        producer.start();
        return producer;
    }

    /** Asks one after the other, or with callbacks all at once. */
    @Command("requester.ask")
    Object ask(Arguments arguments) throws Exception {
        DefaultMQProducer producer = requesters.get(arguments);
        long timeoutMs = arguments.number("timeoutMs");
        List<Waiting> waiting = new ArrayList<>();
        for (Arguments fields : arguments.objects("messages")) {
            Message message = Json.parseMessage(arguments.text("topic"), fields);
            Waiting one = new Waiting();
            waiting.add(one);
            if (arguments.text("mode", "sync").equals("async")) {
                producer.request(message, one, timeoutMs);
            } else {
                askAndWait(producer, message, one, timeoutMs);
            }
        }
        List<Object> results = new ArrayList<>();
        for (Waiting one : waiting) {
            results.add(one.answer.get(30, TimeUnit.SECONDS));
        }
        return Map.of("results", results);
    }

    private static void askAndWait(DefaultMQProducer producer, Message message, Waiting one, long timeoutMs) {
        try {
            one.onSuccess(producer.request(message, timeoutMs));
        } catch (Exception error) {
            one.onException(error);
        }
    }

    @Command("requester.drop")
    Object dropRequester(Arguments arguments) {
        Clients.drop(requesters.remove(arguments).getDefaultMQProducerImpl().getMqClientFactory());
        return null;
    }

    @Command("requester.stop")
    Object stopRequester(Arguments arguments) throws Exception {
        Clients.stop(requesters.remove(arguments), DefaultMQProducer::shutdown);
        return null;
    }

    @Command("responder.start")
    Object startResponder(Arguments arguments) throws Exception {
        String name = arguments.text("name");
        Responder responder = new Responder(producer(arguments, name + "-answers"), arguments);
        responder.consumer.setNamesrvAddr(arguments.text("namesrv"));
        responder.consumer.setInstanceName(Clients.instance(name));
        responder.consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        responder.consumer.subscribe(arguments.text("topic"), "*");
        responder.consumer.registerMessageListener(responder);
        responder.consumer.start();
        responders.put(arguments, responder);
        return Map.of("clientId", responder.consumer.buildMQClientId());
    }

    /** What became of the answers, once there are count of them or the time is over. */
    @Command("responder.answered")
    Object answered(Arguments arguments) throws Exception {
        return Map.of("results", Await.enough(arguments, responders.get(arguments)::results));
    }

    @Command("responder.release")
    Object release(Arguments arguments) {
        responders.get(arguments).released.countDown();
        return null;
    }

    @Command("responder.stop")
    Object stopResponder(Arguments arguments) throws Exception {
        Responder stopped = responders.remove(arguments);
        Clients.stop(stopped.consumer, DefaultMQPushConsumer::shutdown);
        Clients.stop(stopped.producer, DefaultMQProducer::shutdown);
        return null;
    }

    /** The outcome of one request, as JSON. */
    private static final class Waiting implements RequestCallback {
        private final CompletableFuture<Map<String, Object>> answer = new CompletableFuture<>();

        @Override
        public void onSuccess(Message reply) {
            answer.complete(Map.of("reply", Json.received((MessageExt) reply)));
        }

        @Override
        public void onException(Throwable error) {
            answer.complete(Map.of("error", Json.failure(error)));
        }
    }

    /** Consumes requests and sends replies. */
    private static final class Responder implements MessageListenerConcurrently {
        private final DefaultMQPushConsumer consumer;
        private final DefaultMQProducer producer;
        private final boolean isSilent;
        private final CountDownLatch released;
        private final List<Object> results = new ArrayList<>();

        Responder(DefaultMQProducer producer, Arguments arguments) {
            this.producer = producer;
            consumer = new DefaultMQPushConsumer(arguments.text("group"));
            isSilent = arguments.flag("silent");
            released = new CountDownLatch(arguments.flag("held") ? 1 : 0);
        }

        @Override
        public ConsumeConcurrentlyStatus consumeMessage(
                List<MessageExt> messages,
                org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext context) {
            for (MessageExt message : messages) {
                keep(isSilent ? Map.of() : respond(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }

        private Map<String, Object> respond(MessageExt request) {
            byte[] body = ("re: " + new String(request.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
            try {
                released.await(RELEASE_LIMIT_S, TimeUnit.SECONDS);
                return Json.sent(producer.send(MessageUtil.createReplyMessage(request, body)));
            } catch (Exception error) {
                return Map.of("error", Json.failure(error));
            }
        }

        private synchronized void keep(Map<String, Object> result) {
            results.add(result);
        }

        private synchronized List<Object> results() {
            return new ArrayList<>(results);
        }
    }
}
