package rocketlet.interop;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;

/**
 * Runs the commands of a driver, whatever its clients are.
 *
 * <p>Each line on stdin is a command {@code {"id": 1, "do": "producer.send", …arguments}}; each line on stdout is an
 * answer {@code {"id": 1, "ok": …}} or {@code {"id": 1, "error": {"type", "code", "message"}}}. Commands run side by
 * side, so a waiting one does not hold up the next. Logs go to stderr. At the end of stdin the process exits without
 * any good-bye to the brokers, as a killed one would; what shall be stopped properly is stopped by its command.
 */
final class CommandLoop {
    private final Map<String, Run> commands = new TreeMap<>();
    private final PrintStream answers = System.out;
    private final Gson gson;
    private final Function<Throwable, Object> failure;

    private interface Run {
        Object with(Arguments arguments) throws Exception;
    }

    /** Takes the commands of the groups, classes of this package; those that are not built are left out. */
    CommandLoop(String client, List<String> groups, Gson gson, Function<Throwable, Object> failure)
            throws ReflectiveOperationException {
        this.gson = gson;
        this.failure = failure;
        System.setOut(System.err);
        commands.put("hello", arguments -> Map.of(
                "client", client, "pid", ProcessHandle.current().pid(), "commands", commands.keySet()));
        for (String group : groups) {
            addGroup(group);
        }
    }

    void run() throws IOException {
        ExecutorService workers = Executors.newCachedThreadPool();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            workers.execute(() -> answer(request));
        }
        Runtime.getRuntime().halt(0);
    }

    private void addGroup(String name) throws ReflectiveOperationException {
        Class<?> group;
        try {
            group = Class.forName(CommandLoop.class.getPackageName() + "." + name);
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

    private void answer(JsonObject request) {
        JsonObject answer = new JsonObject();
        answer.add("id", request.get("id"));
        try {
            Object result = run(request.get("do").getAsString(), new Arguments(request));
            answer.add("ok", gson.toJsonTree(result == null ? Map.of() : result));
        } catch (Throwable error) {  // every command is answered, whatever the client library throws
            error.printStackTrace();
            answer.add("error", gson.toJsonTree(failure.apply(unwrap(error))));
        }
        print(gson.toJson(answer));
    }

    private Object run(String name, Arguments arguments) throws Exception {
        Run command = commands.get(name);
        if (command == null) {
            throw new IllegalArgumentException("unknown command " + name);
        }
        return command.with(arguments);
    }

    static Throwable unwrap(Throwable error) {
        boolean wraps = error instanceof InvocationTargetException || error instanceof ExecutionException;
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
