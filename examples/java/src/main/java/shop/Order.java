package shop;

import com.google.gson.Gson;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.message.Message;

/** So many pieces of an item. */
record Order(String id, String item, int quantity) {
    private static final Gson GSON = new Gson();

    /** Returns the message that tells of the order: by its id, and its state as the tag. */
    Message message(String topic, String state) {
        return new Message(topic, state, id, GSON.toJson(this).getBytes(StandardCharsets.UTF_8));
    }

    static Order of(Message message) {
        return GSON.fromJson(new String(message.getBody(), StandardCharsets.UTF_8), Order.class);
    }
}
