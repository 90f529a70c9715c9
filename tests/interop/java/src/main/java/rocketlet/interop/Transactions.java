package rocketlet.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers of transactions. A message says itself what becomes of it: its property "outcome" when it was sent, and
 * "checked" when the broker asks; "commit", "rollback", "unknown", "null" or "exception".
 */
final class Transactions {
    private final Named<Participant> participants = new Named<>("transaction");

    @Command("transaction.start")
    Object start(Arguments arguments) throws Exception {
        Participant made = new Participant(arguments.text("group"));
        Clients.addressed(made.producer, arguments);
        made.producer.setTransactionListener(made);
        Beans.apply(made.producer, arguments.object("settings")).start();
        if (arguments.has("topic")) {
            made.producer.getDefaultMQProducerImpl().getMqClientFactory()
                    .updateTopicRouteInfoFromNameServer(arguments.text("topic"));
            Clients.announce(made.producer);
        }
        participants.put(arguments, made);
        return Map.of("clientId", made.producer.buildMQClientId());
    }

    @Command("transaction.send")
    Object send(Arguments arguments) throws Exception {
        TransactionMQProducer producer = participants.get(arguments).producer;
        List<Object> results = new ArrayList<>();
        for (Arguments fields : arguments.objects("messages")) {
            Message message = Json.parseMessage(arguments.text("topic"), fields);
            results.add(sendOne(producer, message));
        }
        return Map.of("results", results);
    }

    private static Map<String, Object> sendOne(TransactionMQProducer producer, Message message) {
        try {
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            Map<String, Object> sent = Json.sent(result);
            sent.put("state", result.getLocalTransactionState().name());
            return sent;
        } catch (Exception error) {
            // What the broker refuses the client wraps in an exception without a code.
            return Map.of("error", Json.failure(error.getCause() instanceof MQBrokerException ? error.getCause() : error));
        }
    }

    /** The messages that the broker has asked about, once there are count of them or the time is over. */
    @Command("transaction.checked")
    Object checked(Arguments arguments) throws Exception {
        return Map.of("messages", Await.enough(arguments, participants.get(arguments)::checks));
    }

    @Command("transaction.stop")
    Object stop(Arguments arguments) throws Exception {
        Clients.stop(participants.remove(arguments).producer, TransactionMQProducer::shutdown);
        return null;
    }

    /** A producer and its side of the transactions. */
    private static final class Participant implements TransactionListener {
        private final TransactionMQProducer producer;
        private final List<Map<String, Object>> checks = new ArrayList<>();

        Participant(String group) {
            producer = new TransactionMQProducer(group);
            producer.setSendMsgTimeout(Clients.ANSWER_LIMIT_MS);
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(message.getUserProperty("outcome"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            keep(Json.received(message));
            return state(message.getUserProperty("checked"));
        }

        private static LocalTransactionState state(String word) {
            return switch (word == null ? "unknown" : word) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                case "null" -> null;
                case "exception" -> throw new IllegalStateException("failed on purpose");
                default -> LocalTransactionState.UNKNOW;
            };
        }

        private synchronized void keep(Map<String, Object> check) {
            checks.add(check);
        }

        private synchronized List<Map<String, Object>> checks() {
            return new ArrayList<>(checks);
        }
    }
}
