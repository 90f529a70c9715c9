package rocketlet.interop;

import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.proxy.ProxyStartup;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The official proxy in local mode, with the broker inside: one in a process, which ends with it. */
final class Proxies {
    private static final long REGISTRATION_LIMIT_MS = 30_000;

    /** Starts it; settings are the keys of a broker.conf, proxySettings those of a rmq-proxy.json, all as text. */
    @Command("proxy.start")
    Object start(Arguments arguments) throws Exception {
        Path home = Path.of(System.getProperty("rocketmq.home.dir"));
        Properties broker = Servers.brokerSettings(arguments);
        Path brokerFile = home.resolve("broker.conf");
        try (Writer writer = Files.newBufferedWriter(brokerFile)) {
            broker.store(writer, null);
        }
        Map<String, String> proxy = new HashMap<>(arguments.object("proxySettings").textMap());
        String cluster = broker.getProperty("brokerClusterName");
        proxy.putIfAbsent("rocketMQClusterName", cluster);
        proxy.putIfAbsent("grpcServerPort", Integer.toString(Servers.freePort(1)));
        proxy.putIfAbsent("remotingListenPort", Integer.toString(Servers.freePort(1)));
        Path proxyFile = home.resolve("rmq-proxy.json");
        Files.writeString(proxyFile, Json.GSON.toJson(proxy), StandardCharsets.UTF_8);

        String nameServer = broker.getProperty("namesrvAddr");
        ProxyStartup.main(new String[] {
                "-pm", "local", "-n", nameServer, "-bc", brokerFile.toString(), "-pc", proxyFile.toString()});
        String address = Servers.HOST + ":" + broker.getProperty("listenPort");
        awaitRegistration(nameServer, address);
        return Map.of("address", address, "grpc", Servers.HOST + ":" + proxy.get("grpcServerPort"));
    }

    private static void awaitRegistration(String nameServer, String address) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName(Clients.instance("registration"));
        admin.start();
        try {
            boolean registered = Await.until(REGISTRATION_LIMIT_MS, () ->
                    admin.examineBrokerClusterInfo().getBrokerAddrTable().values().stream()
                            .anyMatch(broker -> broker.getBrokerAddrs().containsValue(address)));
            if (!registered) {
                throw new IllegalStateException("the broker of the proxy did not register; its log is on stderr");
            }
        } finally {
            admin.shutdown();
        }
    }
}
