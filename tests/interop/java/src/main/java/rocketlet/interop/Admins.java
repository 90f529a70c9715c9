package rocketlet.interop;

import com.google.gson.JsonArray;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.management.LockInfo;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** Administration: any method of DefaultMQAdminExt by its name, and mqadmin with what it prints. */
final class Admins {
    private static final long HURRY_MS = 20;

    private final Named<DefaultMQAdminExt> admins = new Named<>("admin");

    @Command("admin.start")
    Object start(Arguments arguments) throws Exception {
        DefaultMQAdminExt admin = Clients.addressed(new DefaultMQAdminExt(), arguments);
        Beans.apply(admin, arguments.object("settings")).start();
        admins.put(arguments, admin);
        return null;
    }

    /** Calls {@code method(args…)}; arguments are converted to the parameter types of the fitting overload. */
    @Command("admin.call")
    Object call(Arguments arguments) throws Exception {
        DefaultMQAdminExt admin = admins.get(arguments);
        JsonArray values = arguments.elements("args");
        RuntimeException mismatch = null;
        for (Method method : overloads(arguments.text("method"), values.size())) {
            Object[] converted;
            try {
                converted = convert(method, values);
            } catch (RuntimeException unfit) {
                mismatch = unfit;
                continue;
            }
            return method.invoke(admin, converted);
        }
        throw new IllegalArgumentException("no " + arguments.text("method") + " takes " + values, mismatch);
    }

    private static List<Method> overloads(String name, int count) {
        return Arrays.stream(DefaultMQAdminExt.class.getMethods())
                .filter(method -> method.getName().equals(name) && method.getParameterCount() == count)
                .toList();
    }

    private static Object[] convert(Method method, JsonArray values) {
        Object[] converted = new Object[values.size()];
        for (int index = 0; index < converted.length; index++) {
            converted[index] = Json.GSON.fromJson(values.get(index), method.getGenericParameterTypes()[index]);
        }
        return converted;
    }

    /** Creates a topic on one broker and waits until the name server tells its route. */
    @Command("admin.createTopic")
    Object createTopic(Arguments arguments) throws Exception {
        DefaultMQAdminExt admin = admins.get(arguments);
        TopicConfig config = new TopicConfig(arguments.text("topic"));
        int queues = arguments.count("queues", 4);
        config.setReadQueueNums(queues);
        config.setWriteQueueNums(queues);
        Beans.apply(config, arguments.object("settings"));
        admin.createAndUpdateTopicConfig(arguments.text("broker"), config);
        return awaitRoute(arguments);
    }

    /** Waits until the name server tells a route, to just these brokers if some are named. */
    @Command("admin.awaitRoute")
    Object awaitRoute(Arguments arguments) throws Exception {
        DefaultMQAdminExt admin = admins.get(arguments);
        String topic = arguments.text("topic");
        Set<String> wanted = Set.copyOf(arguments.texts("brokers"));
        boolean routed = Await.until(arguments.number("timeoutMs", 5_000), () -> {
            Set<String> found = brokers(admin, topic);
            return wanted.isEmpty() ? !found.isEmpty() : found.equals(wanted);
        });
        return Map.of("routed", routed, "seenAt", System.currentTimeMillis());
    }

    private static Set<String> brokers(DefaultMQAdminExt admin, String topic) throws Exception {
        try {
            return admin.examineTopicRouteInfo(topic).getBrokerDatas().stream()
                    .map(broker -> broker.getBrokerName())  // its package is another one in 4.9.8
                    .collect(Collectors.toSet());
        } catch (org.apache.rocketmq.client.exception.MQClientException noRoute) {
            return Set.of();
        }
    }

    /** What the groups of its topic have done with a message, by unique key or offset id. */
    @Command("admin.tracks")
    Object tracks(Arguments arguments) throws Exception {
        DefaultMQAdminExt admin = admins.get(arguments);
        MessageExt message = admin.viewMessage(arguments.text("topic"), arguments.text("messageId"));
        return Map.of("tracks", admin.messageTrackDetail(message));
    }

    @Command("admin.stop")
    Object stop(Arguments arguments) throws Exception {
        Clients.stop(admins.remove(arguments), DefaultMQAdminExt::shutdown);
        return null;
    }

    /** Has the commands made anew, as for each process: queryMsgByUniqueKey keeps a client that it has shut down. */
    private static void forgetCommands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    /** Runs mqadmin in this process and returns what it prints; one at a time, since it prints to the one stdout. */
    @Command("mqadmin")
    static synchronized Object runTool(Arguments arguments) throws ReflectiveOperationException {
        forgetCommands();
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        Thread hurrying = hurry(Thread.currentThread());
        try {
            MQAdminStartup.main0(arguments.texts("args").toArray(new String[0]), null);
        } finally {
            hurrying.interrupt();
            System.setOut(out);
            System.setErr(err);
        }
        return Map.of(
                "output", printed.toString(StandardCharsets.UTF_8), "errors", errors.toString(StandardCharsets.UTF_8));
    }

    /**
     * Starts a thread that ends the waiting of a tool for its own: one of a client's threads looks every 3 s only whether
     * it shall stop, unless it is interrupted.
     */
    private static Thread hurry(Thread tool) {
        Thread hurrying = new Thread(() -> {
            try {
                while (true) {
                    Thread.sleep(HURRY_MS);
                    interruptWhatItWaitsFor(tool);
                }
            } catch (InterruptedException done) {
                // the tool has ended
            }
        }, "hurrying");
        hurrying.setDaemon(true);
        hurrying.start();
        return hurrying;
    }

    private static void interruptWhatItWaitsFor(Thread tool) {
        ThreadInfo waiting = ManagementFactory.getThreadMXBean().getThreadInfo(tool.getId());
        LockInfo object = waiting == null ? null : waiting.getLockInfo();
        if (object != null && object.getClassName().equals(Thread.class.getName())) {
            Thread.getAllStackTraces().keySet().stream()
                    .filter(thread -> System.identityHashCode(thread) == object.getIdentityHashCode())
                    .filter(thread -> thread.getName().endsWith("NettyEventExecutor"))
                    .forEach(Thread::interrupt);
        }
    }

    /** Tells the commands of mqadmin with their options, as its own table has them. */
    @Command("mqadmin.commands")
    static synchronized Object listTools(Arguments arguments) throws ReflectiveOperationException {
        Field table = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        table.setAccessible(true);
        if (((List<?>) table.get(null)).isEmpty()) {
            MQAdminStartup.initCommand();
        }
        Map<String, Object> commands = new LinkedHashMap<>();
        for (Object each : (List<?>) table.get(null)) {
            SubCommand command = (SubCommand) each;
            commands.put(command.commandName(), describe(command));
        }
        return Map.of("commands", commands.values());
    }

    private static Object describe(SubCommand command) {
        Options options = command.buildCommandlineOptions(new Options());
        List<Object> described = new ArrayList<>();
        for (Object each : options.getOptions()) {  // of an older library in 4.9.8, which does not say of what
            Option option = (Option) each;
            described.add(Map.of(
                    "name", String.valueOf(option.getOpt()),
                    "longName", String.valueOf(option.getLongOpt()),
                    "required", option.isRequired(),
                    "takesValue", option.hasArg(),
                    "description", String.valueOf(option.getDescription())));
        }
        return Map.of(
                "name", command.commandName(),
                "alias", String.valueOf(command.commandAlias()),
                "description", command.commandDesc(),
                "options", described);
    }
}
