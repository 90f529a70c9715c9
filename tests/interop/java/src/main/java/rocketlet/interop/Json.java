package rocketlet.interop;

import com.google.gson.ExclusionStrategy;
import com.google.gson.FieldAttributes;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonSerializer;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.Lock;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** How RocketMQ's values look in the driver's JSON: bodies in base64, addresses as host:port. */
final class Json {
    /** Fields of the library's beans that are no data and that reflection may not open. */
    private static final ExclusionStrategy NO_DATA = new ExclusionStrategy() {
        @Override
        public boolean shouldSkipField(FieldAttributes field) {
            return false;
        }

        @Override
        public boolean shouldSkipClass(Class<?> type) {
            return Random.class.isAssignableFrom(type) || Lock.class.isAssignableFrom(type);
        }
    };

    static final Gson GSON = new GsonBuilder()
            .addSerializationExclusionStrategy(NO_DATA)
            .addDeserializationExclusionStrategy(NO_DATA)
            .disableHtmlEscaping()
            .enableComplexMapKeySerialization()
            .serializeSpecialFloatingPointValues()
            .registerTypeHierarchyAdapter(byte[].class, (JsonSerializer<byte[]>)
                    (bytes, type, context) -> context.serialize(encodeBytes(bytes)))
            .registerTypeHierarchyAdapter(MessageExt.class, (JsonSerializer<MessageExt>)
                    (message, type, context) -> context.serialize(received(message)))
            .create();

    private Json() {
    }

    static String encodeBytes(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    static Map<String, Object> queue(MessageQueue queue) {
        return Map.of("topic", queue.getTopic(), "brokerName", queue.getBrokerName(), "queueId", queue.getQueueId());
    }

    static MessageQueue parseQueue(Arguments queue) {
        return new MessageQueue(queue.text("topic"), queue.text("brokerName"), queue.count("queueId", 0));
    }

    static Message parseMessage(String topic, Arguments fields) throws ReflectiveOperationException {
        Message message = new Message(fields.text("topic", topic), fields.has("body") ? fields.bytes("body") : null);
        message.setFlag(fields.count("flag", 0));
        fields.object("properties").textMap().forEach(message::putUserProperty);
        if (fields.has("tags")) {
            message.setTags(fields.text("tags"));
        }
        if (fields.has("keys")) {
            message.setKeys(fields.texts("keys"));
        }
        if (fields.has("delayLevel")) {
            message.setDelayTimeLevel(fields.count("delayLevel", 0));
        }
        Beans.apply(message, fields.object("timing"));
        if (fields.has("waitsForStore")) {
            message.setWaitStoreMsgOK(fields.flag("waitsForStore"));
        }
        return message;
    }

    static Map<String, Object> sent(SendResult result) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("status", result.getSendStatus().name());
        fields.put("msgId", result.getMsgId());
        fields.put("offsetMsgId", result.getOffsetMsgId());
        fields.put("queue", queue(result.getMessageQueue()));
        fields.put("queueOffset", result.getQueueOffset());
        fields.put("transactionId", result.getTransactionId());
        fields.put("regionId", result.getRegionId());
        fields.put("traceOn", result.isTraceOn());
        fields.put("recallHandle", recallHandle(result));
        fields.put("answeredAt", System.currentTimeMillis());
        return fields;
    }

    /** Returns the handle of a timer message; clients before 5.x know none. */
    private static Object recallHandle(SendResult result) {
        try {
            return SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (ReflectiveOperationException error) {
            return null;
        }
    }

    static Map<String, Object> received(MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("brokerName", message.getBrokerName());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("logOffset", message.getCommitLogOffset());
        fields.put("msgId", message.getMsgId());
        fields.put("offsetMsgId", message instanceof MessageClientExt client ? client.getOffsetMsgId() : null);
        fields.put("tags", message.getTags());
        fields.put("keys", message.getKeys());
        fields.put("properties", new LinkedHashMap<>(message.getProperties()));
        fields.put("body", encodeBytes(message.getBody()));
        fields.put("flag", message.getFlag());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("bornHost", address(message.getBornHost()));
        fields.put("storeHost", address(message.getStoreHost()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.put("bodyCrc", message.getBodyCRC());
        fields.put("storeSize", message.getStoreSize());
        return fields;
    }

    static Map<String, Object> failure(Throwable error) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("type", error.getClass().getSimpleName());
        fields.put("code", responseCode(error));
        fields.put("message", String.valueOf(error.getMessage()));
        fields.put("cause", error.getCause() == null ? null : error.getCause().getMessage());
        return fields;
    }

    private static Integer responseCode(Throwable error) {
        if (error instanceof MQBrokerException broker) {
            return broker.getResponseCode();
        }
        if (error instanceof RequestTimeoutException late) {
            return late.getResponseCode();
        }
        return error instanceof MQClientException client ? client.getResponseCode() : null;
    }

    private static String address(SocketAddress address) {
        return address instanceof InetSocketAddress inet
                ? inet.getAddress().getHostAddress() + ":" + inet.getPort() : String.valueOf(address);
    }
}
