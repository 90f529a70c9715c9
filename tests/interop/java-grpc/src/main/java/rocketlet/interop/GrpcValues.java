package rocketlet.interop;

import com.google.gson.JsonElement;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.java.impl.producer.SendReceiptImpl;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/** How the official client's values look in the driver's JSON: bodies in base64, times in milliseconds. */
final class GrpcValues {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    /** The client tells the code of a refusal only in its text. */
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");

    private GrpcValues() {
    }

    /** Returns how a client finds its server and who it says it is; TLS is left as the client has it unless given. */
    static ClientConfiguration configuration(Arguments arguments) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(arguments.text("endpoints"));
        if (arguments.has("tls")) {
            builder.enableSsl(arguments.flag("tls"));
        }
        if (arguments.has("accessKey")) {
            builder.setCredentialProvider(
                    new StaticSessionCredentialsProvider(arguments.text("accessKey"), arguments.text("secretKey")));
        }
        if (arguments.has("requestTimeoutMs")) {
            builder.setRequestTimeout(Duration.ofMillis(arguments.number("requestTimeoutMs")));
        }
        return builder.build();
    }

    /** Returns topics with their expressions: none, of tags, or {"sql"}. */
    static Map<String, FilterExpression> subscriptions(Arguments arguments) {
        Map<String, FilterExpression> expressions = new TreeMap<>();
        arguments.object("subscriptions").json().entrySet().forEach(
                entry -> expressions.put(entry.getKey(), expression(entry.getValue())));
        return expressions;
    }

    private static FilterExpression expression(JsonElement wanted) {
        if (wanted.isJsonNull()) {
            return FilterExpression.SUB_ALL;
        }
        return wanted.isJsonObject()
                ? new FilterExpression(wanted.getAsJsonObject().get("sql").getAsString(), FilterExpressionType.SQL92)
                : new FilterExpression(wanted.getAsString(), FilterExpressionType.TAG);
    }

    static Message message(String topic, Arguments fields) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(topic).setBody(fields.bytes("body"));
        fields.object("properties").textMap().forEach(builder::addProperty);
        if (fields.has("tag")) {
            builder.setTag(fields.text("tag"));
        }
        if (fields.has("keys")) {
            builder.setKeys(fields.texts("keys").toArray(String[]::new));
        }
        if (fields.has("messageGroup")) {
            builder.setMessageGroup(fields.text("messageGroup"));
        }
        if (fields.has("deliverAtMs")) {
            builder.setDeliveryTimestamp(fields.number("deliverAtMs"));
        }
        if (fields.has("priority")) {
            builder.setPriority(fields.count("priority", 0));
        }
        return builder.build();
    }

    static Map<String, Object> receipt(SendReceipt receipt) {
        SendReceiptImpl whole = (SendReceiptImpl) receipt;
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("messageId", receipt.getMessageId().toString());
        fields.put("transactionId", orNull(whole.getTransactionId()));
        fields.put("offset", whole.getOffset());
        fields.put("recallHandle", orNull(receipt.getRecallHandle()));
        return fields;
    }

    private static String orNull(String text) {
        return text == null || text.isEmpty() ? null : text;
    }

    static Map<String, Object> view(MessageView message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("messageId", message.getMessageId().toString());
        fields.put("body", Base64.getEncoder().encodeToString(bytes(message.getBody())));
        fields.put("tag", message.getTag().orElse(null));
        fields.put("keys", List.copyOf(message.getKeys()));
        fields.put("properties", message.getProperties());
        fields.put("messageGroup", message.getMessageGroup().orElse(null));
        fields.put("deliverAtMs", message.getDeliveryTimestamp().orElse(null));
        fields.put("priority", message.getPriority().orElse(null));
        fields.put("bornHost", message.getBornHost());
        fields.put("bornAtMs", message.getBornTimestamp());
        fields.put("attempt", message.getDeliveryAttempt());
        fields.put("corrupted", ((MessageViewImpl) message).isCorrupted());
        fields.put("receivedAt", System.currentTimeMillis());
        return fields;
    }

    private static byte[] bytes(ByteBuffer body) {
        byte[] bytes = new byte[body.remaining()];
        body.duplicate().get(bytes);
        return bytes;
    }

    static Map<String, Object> failure(Throwable error) {
        Matcher code = CODE.matcher(String.valueOf(error.getMessage()));
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("type", error.getClass().getSimpleName());
        fields.put("code", code.find() ? Integer.valueOf(code.group(1)) : null);
        fields.put("message", String.valueOf(error.getMessage()));
        return fields;
    }

    /** Returns what a call returns, or the error that it throws. */
    static Object attempt(Callable<Object> call) {
        try {
            return call.call();
        } catch (Exception error) {  // the test hears of whatever the client throws
            return Map.of("error", failure(CommandLoop.unwrap(error)));
        }
    }
}
