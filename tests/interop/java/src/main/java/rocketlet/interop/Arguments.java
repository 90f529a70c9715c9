package rocketlet.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** Reads the fields of a JSON object; an absent or null field takes the default, and without one is an error. */
record Arguments(JsonObject json) {
    boolean has(String name) {
        return json.has(name) && !json.get(name).isJsonNull();
    }

    String text(String name) {
        return require(name).getAsString();
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long number(String name) {
        return require(name).getAsLong();
    }

    long number(String name, long otherwise) {
        return has(name) ? number(name) : otherwise;
    }

    int count(String name, int otherwise) {
        return Math.toIntExact(number(name, otherwise));
    }

    boolean flag(String name) {
        return has(name) && json.get(name).getAsBoolean();
    }

    byte[] bytes(String name) {
        return Base64.getDecoder().decode(text(name));
    }

    Arguments object(String name) {
        return new Arguments(has(name) ? json.getAsJsonObject(name) : new JsonObject());
    }

    List<Arguments> objects(String name) {
        return list(name, element -> new Arguments(element.getAsJsonObject()));
    }

    List<String> texts(String name) {
        return list(name, JsonElement::getAsString);
    }

    JsonArray elements(String name) {
        return has(name) ? json.getAsJsonArray(name) : new JsonArray();
    }

    Map<String, String> textMap() {
        Map<String, String> texts = new LinkedHashMap<>();
        json.entrySet().forEach(entry -> texts.put(entry.getKey(), entry.getValue().getAsString()));
        return texts;
    }

    private <T> List<T> list(String name, Function<JsonElement, T> read) {
        List<T> items = new ArrayList<>();
        elements(name).forEach(element -> items.add(read.apply(element)));
        return items;
    }

    private JsonElement require(String name) {
        if (!has(name)) {
            throw new IllegalArgumentException("argument " + name + " is missing");
        }
        return json.get(name);
    }
}
