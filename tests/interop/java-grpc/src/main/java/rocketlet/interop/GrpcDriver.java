package rocketlet.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.util.List;

/** A long-lived process that runs the official client for RocketMQ 5 for a test; {@link CommandLoop} says how. */
public final class GrpcDriver {
    private static final List<String> GROUPS =
            List.of("GrpcProducers", "GrpcPushConsumers", "GrpcSimpleConsumers", "GrpcLoad");
    private static final Gson GSON = new GsonBuilder().disableHtmlEscaping().create();

    private GrpcDriver() {
    }

    public static void main(String[] arguments) throws Exception {
        String version = org.apache.rocketmq.client.java.misc.MetadataUtils.getVersion();
        new CommandLoop("java " + version, GROUPS, GSON, GrpcValues::failure).run();
    }
}
