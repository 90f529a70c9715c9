package rocketlet.interop;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A long-lived process that runs the official clients, tools and servers for a test.
 *
 * <p>Each line on stdin is a command {@code {"id": 1, "do": "producer.send", …arguments}}; each line on stdout is an
 * answer {@code {"id": 1, "ok": …}} or {@code {"id": 1, "error": {"type", "code", "message"}}}. Commands run side by
 * side, so a waiting one does not hold up the next. Logs go to stderr. At the end of stdin the process exits without
 * any good-bye to the brokers, as a killed one would; what shall be stopped properly is stopped by its command.
 *
 * <p>A new command is a method with {@link Command}, a new group of them one more name in {@link #GROUPS}.
 */
public final class Driver {
    private static final List<String> GROUPS = List.of(
            "Producers", "Transactions", "Requests", "PushConsumers", "PullConsumers", "LitePullConsumers", "Admins", "Load", "Pace", "Storms",
            "Traces", "Servers", "Proxies");

    private final Map<String, Run> commands = new TreeMap<>();
    private final PrintStream answers;

    private interface Run {
        Object with(Arguments arguments) throws Exception;
    }

    private Driver(PrintStream answers) throws ReflectiveOperationException {
        this.answers = answers;
        commands.put("hello", arguments -> hello());
        for (String group : GROUPS) {
            addGroup(group);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ExecutorService workers = Executors.newCachedThreadPool();
        Driver driver = new Driver(answers);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            workers.execute(() -> driver.answer(request));
        }
        Runtime.getRuntime().halt(0);
    }

    private void addGroup(String name) throws ReflectiveOperationException {
        Class<?> group;
        try {
            group = Class.forName(Driver.class.getPackageName() + "." + name);
        } catch (ClassNotFoundException notBuilt) {
            return;  // the clients profile builds no servers
        }
        Object commandsOfGroup = group.getDeclaredConstructor().newInstance();
        for (Method method : group.getDeclaredMethods()) {
            Command command = method.getAnnotation(Command.class);
            if (command != null) {
                commands.put(command.value(), arguments -> method.invoke(commandsOfGroup, arguments));
            }
        }
    }

    private Object hello() {
        int version = org.apache.rocketmq.common.MQVersion.CURRENT_VERSION;
        return Map.of(
                "client", org.apache.rocketmq.common.MQVersion.getVersionDesc(version),
                "pid", ProcessHandle.current().pid(),
                "commands", commands.keySet());
    }

    private void answer(JsonObject request) {
        JsonObject answer = new JsonObject();
        answer.add("id", request.get("id"));
        try {
            Object result = run(request.get("do").getAsString(), new Arguments(request));
            answer.add("ok", Json.GSON.toJsonTree(result == null ? Map.of() : result));
        } catch (Throwable error) {  // every command is answered, whatever the client library throws
            error.printStackTrace();
            answer.add("error", Json.GSON.toJsonTree(Json.failure(unwrap(error))));
        }
        print(Json.GSON.toJson(answer));
    }

    private Object run(String name, Arguments arguments) throws Exception {
        Run command = commands.get(name);
        if (command == null) {
            throw new IllegalArgumentException("unknown command " + name);
        }
        return command.with(arguments);
    }

    private static Throwable unwrap(Throwable error) {
        boolean wraps = error instanceof java.lang.reflect.InvocationTargetException
                || error instanceof java.util.concurrent.ExecutionException;
        return wraps && error.getCause() != null ? unwrap(error.getCause()) : error;
    }

    private synchronized void print(String line) {
        try {
            answers.write((line + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException closed) {
            Runtime.getRuntime().halt(1);
        }
        answers.flush();
    }
}
