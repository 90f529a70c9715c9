package shop;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;

/** A broker for tests: a process of its own, which is driven by its control port. */
final class Rocketlet implements AutoCloseable {
    private static final Gson GSON = new Gson();

    final String nameserver;
    private final Process process;
    private final String control;
    private final HttpClient http = HttpClient.newHttpClient();

    /** Starts the program that the environment variable ROCKETLET names, or {@code rocketlet}. */
    Rocketlet() throws IOException {
        String program = System.getenv().getOrDefault("ROCKETLET", "rocketlet");
        process = new ProcessBuilder(program, "up", "--ephemeral",
                "--namesrv-port", "0", "--broker-port", "0", "--control-port", "0")
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start();
        BufferedReader output = process.inputReader(StandardCharsets.UTF_8);
        String ready = output.readLine();
        if (ready == null) {
            throw new IOException(program + " has ended before it was ready");
        }
        nameserver = valueOf("namesrv", ready);
        control = valueOf("control", ready);
    }

    /** Returns an address of the line "ready namesrv=… broker=… control=…". */
    private static String valueOf(String name, String ready) {
        for (String word : ready.split(" ")) {
            if (word.startsWith(name + "=")) {
                return word.substring(name.length() + 1);
            }
        }
        throw new IllegalStateException("no " + name + " in: " + ready);
    }

    @Override
    public void close() throws InterruptedException {
        process.destroy();
        process.waitFor();
    }

    // --- tests

    void beginTest(String name) {
        post("/test", Map.of("name", name));
    }

    /** Ends what the test has injected; fails if it has not happened, or if the broker has failed. */
    void endTest() {
        call("DELETE", "/test", HttpRequest.BodyPublishers.noBody());
    }

    String topic() {
        return post("/topics", Map.of()).getAsJsonObject().get("name").getAsString();
    }

    String group() {
        return post("/groups", Map.of()).getAsJsonObject().get("name").getAsString();
    }

    // --- looking and waiting

    /** Fails unless a topic has exactly so many messages with this tag and key. */
    void assertSent(String topic, String tag, String key, int times) {
        post("/expect", Map.of("topic", topic, "tags", tag, "keys", new String[] {key}, "times", times));
    }

    JsonArray waitFor(String topic, String tag) {
        return post("/wait/messages", Map.of("topic", topic, "tag", tag)).getAsJsonArray();
    }

    void waitConsumed(String group) {
        post("/wait/consumed", Map.of("group", group));
    }

    int lag(String group) {
        return get("/lag?group=" + quote(group)).getAsJsonObject().get("total").getAsInt();
    }

    JsonArray deadLetters(String group) {
        return get("/dead-letters?group=" + quote(group)).getAsJsonArray();
    }

    JsonArray transactions() {
        return get("/transactions").getAsJsonArray();
    }

    /** Returns what clients have asked since the test began, by operation and group. */
    JsonArray requests(String on, String group) {
        JsonElement found = get("/requests?on=" + quote(on) + "&group=" + quote(group));
        return found.getAsJsonObject().getAsJsonArray("requests");
    }

    // --- time and faults

    void freeze() {
        post("/clock/freeze", Map.of());
    }

    void advance(Duration span) {
        post("/clock/advance", Map.of("milliseconds", span.toMillis()));
    }

    /** Lets something go wrong, and returns the number of the fault. */
    int addFault(Map<String, ?> rule) {
        return post("/faults", rule).getAsJsonObject().get("id").getAsInt();
    }

    void waitForFault(int fault) {
        post("/faults/" + fault + "/wait", Map.of());
    }

    // --- HTTP

    JsonElement get(String path) {
        return call("GET", path, HttpRequest.BodyPublishers.noBody());
    }

    JsonElement post(String path, Map<String, ?> fields) {
        return call("POST", path, HttpRequest.BodyPublishers.ofString(GSON.toJson(fields)));
    }

    private JsonElement call(String method, String path, HttpRequest.BodyPublisher body) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(control + path))
                .header("Content-Type", "application/json").method(method, body).build();
        try {
            HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
            JsonElement said = answer.body().isEmpty() ? new JsonObject() : JsonParser.parseString(answer.body());
            if (answer.statusCode() >= 400) {
                throw new AssertionError(said.getAsJsonObject().get("error").getAsString());
            }
            return said;
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(method + " " + path, error);
        }
    }

    private static String quote(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }
}
