package rocketlet.interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull consumers: single pulls, whole topics, offsets, and messages by key or id. */
final class PullConsumers {
    private static final int GROUP_DOES_NOT_EXIST = 26;
    private static final int MOST_HEARTBEATS = 5;
    private final Named<DefaultMQPullConsumer> consumers = new Named<>("pull consumer");

    @Command("pull.start")
    Object start(Arguments arguments) throws Exception {
        String group = arguments.text("group", arguments.text("name"));
        DefaultMQPullConsumer consumer = Clients.addressed(new DefaultMQPullConsumer(group), arguments);
        Beans.apply(consumer, arguments.object("settings")).start();
        consumers.put(arguments, consumer);
        return Map.of("clientId", consumer.buildMQClientId());
    }

    @Command("pull.pull")
    Object pull(Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(arguments);
        MessageQueue queue = Json.parseQueue(arguments.object("queue"));
        String expression = arguments.text("expression", "*");
        long offset = arguments.number("offset");
        int count = arguments.count("count", 32);
        PullResult result = arguments.flag("block")
                ? consumer.pullBlockIfNotFound(queue, expression, offset, count)
                : consumer.pull(queue, expression, offset, count);
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("status", result.getPullStatus().name());
        fields.put("nextOffset", result.getNextBeginOffset());
        fields.put("minOffset", result.getMinOffset());
        fields.put("maxOffset", result.getMaxOffset());
        fields.put("messages", found(result).stream().map(Json::received).toList());
        return fields;
    }

    /** Every message of a topic, queue by queue, from the min to the max offset. */
    @Command("pull.all")
    Object readAll(Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(arguments);
        List<Map<String, Object>> messages = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(arguments.text("topic")))) {
            long end = consumer.maxOffset(queue);
            long next = consumer.minOffset(queue);
            while (next < end) {
                PullResult result = consumer.pull(queue, arguments.text("expression", "*"), next, 32);
                if (result.getPullStatus() == PullStatus.OFFSET_ILLEGAL || result.getNextBeginOffset() <= next) {
                    throw new IllegalStateException("pull of " + queue + " at " + next + " gave " + result);
                }
                found(result).forEach(message -> messages.add(Json.received(message)));
                next = result.getNextBeginOffset();
            }
        }
        return Map.of("messages", messages);
    }

    private static List<MessageExt> found(PullResult result) {
        return result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList();
    }

    @Command("pull.queues")
    Object queues(Arguments arguments) throws Exception {
        var queues = consumers.get(arguments).fetchSubscribeMessageQueues(arguments.text("topic"));
        return Map.of("queues", Clients.sorted(queues));
    }

    @Command("pull.offsets")
    Object offsets(Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(arguments);
        MessageQueue queue = Json.parseQueue(arguments.object("queue"));
        return Map.of(
                "min", consumer.minOffset(queue),
                "max", consumer.maxOffset(queue),
                "earliestStoredAt", consumer.earliestMsgStoreTime(queue));
    }

    @Command("pull.search")
    Object search(Arguments arguments) throws Exception {
        MessageQueue queue = Json.parseQueue(arguments.object("queue"));
        return Map.of("offset", consumers.get(arguments).searchOffset(queue, arguments.number("at")));
    }

    /** Stores an offset; where a busy machine has lost the heartbeat that makes the group known, there is another. */
    @Command("pull.commit")
    Object commit(Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(arguments);
        MessageQueue queue = Json.parseQueue(arguments.object("queue"));
        consumer.fetchSubscribeMessageQueues(queue.getTopic());
        consumer.updateConsumeOffset(queue, arguments.number("offset"));
        for (int heartbeats = 1;; heartbeats++) {
            Clients.announce(consumer);
            try {
                consumer.getOffsetStore().updateConsumeOffsetToBroker(queue, arguments.number("offset"), false);
                return null;
            } catch (MQBrokerException refused) {
                if (refused.getResponseCode() != GROUP_DOES_NOT_EXIST || heartbeats == MOST_HEARTBEATS) {
                    throw refused;
                }
            }
        }
    }

    /** What the broker keeps for the group: -1 for nothing, -2 for an error. */
    @Command("pull.committed")
    Object committed(Arguments arguments) throws Exception {
        MessageQueue queue = Json.parseQueue(arguments.object("queue"));
        return Map.of("offset", consumers.get(arguments).fetchConsumeOffset(queue, true));
    }

    @Command("pull.view")
    Object view(Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = consumers.get(arguments);
        return Json.received(consumer.viewMessage(arguments.text("topic"), arguments.text("messageId")));
    }

    @Command("pull.query")
    Object query(Arguments arguments) throws Exception {
        QueryResult result = consumers.get(arguments).queryMessage(
                arguments.text("topic"), arguments.text("key"), arguments.count("count", 64),
                arguments.number("begin", 0), arguments.number("end", Long.MAX_VALUE));
        return Map.of("messages", result.getMessageList().stream().map(Json::received).toList());
    }

    @Command("pull.stop")
    Object stop(Arguments arguments) throws Exception {
        Clients.stop(consumers.remove(arguments), DefaultMQPullConsumer::shutdown);
        return null;
    }
}
