package rocketlet.interop;

import java.util.List;
import org.apache.rocketmq.common.MQVersion;

/**
 * A long-lived process that runs the official clients, tools and servers for a test; {@link CommandLoop} says how.
 *
 * <p>A new command is a method with {@link Command}, a new group of them one more name in {@link #GROUPS}.
 */
public final class Driver {
    private static final List<String> GROUPS = List.of(
            "Producers", "Transactions", "Requests", "PushConsumers", "PullConsumers", "LitePullConsumers", "Admins", "Load", "Pace", "Storms",
            "Traces", "Servers", "Proxies");

    private Driver() {
    }

    public static void main(String[] arguments) throws Exception {
        String client = MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION);
        new CommandLoop(client, GROUPS, Json.GSON, Json::failure).run();
    }
}
