package rocketlet.interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs a command of mqadmin that does not end by itself, after others that do. Its first request has five seconds, which
 * on a busy machine a Java process that has just begun may need for itself.
 */
final class Endless {
    private Endless() {}

    public static void main(String[] arguments) {
        String nameserver = arguments[Arrays.asList(arguments).indexOf("-n") + 1];
        while (!printed("clusterList", "-n", nameserver).contains("broker-a")) {
            // once more
        }
        MQAdminStartup.main(arguments);
    }

    private static String printed(String... arguments) {
        PrintStream out = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(out);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
