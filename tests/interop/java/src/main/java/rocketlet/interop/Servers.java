package rocketlet.interop;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** The official name server and broker, in this process, on free ports of the loopback address. */
final class Servers {
    static final String HOST = "127.0.0.1";
    /** Below the range from which systems take the ports of outgoing connections. */
    private static final int FIRST_PORT = 15_000;
    private static final int LAST_PORT = 32_000;

    private final Named<NamesrvController> nameServers = new Named<>("name server");
    private final Named<BrokerController> brokers = new Named<>("broker");

    @Command("namesrv.start")
    Object startNameServer(Arguments arguments) throws Exception {
        NettyServerConfig netty = new NettyServerConfig();
        netty.setBindAddress(HOST);
        netty.setListenPort(arguments.has("port") ? arguments.count("port", 0) : freePort(1));
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(arguments.text("directory") + "/kvConfig.json");
        config.setConfigStorePath(arguments.text("directory") + "/namesrv.properties");
        MixAll.properties2Object(properties(arguments.object("settings")), config);
        NamesrvController controller = new NamesrvController(config, netty);
        require(controller.initialize(), "name server");
        controller.start();
        nameServers.put(arguments, controller);
        return Map.of("address", HOST + ":" + netty.getListenPort());
    }

    @Command("namesrv.stop")
    Object stopNameServer(Arguments arguments) {
        nameServers.remove(arguments).shutdown();
        return null;
    }

    /** Starts a broker on a store directory; settings are the keys of a broker.conf, as text. */
    @Command("broker.start")
    Object startBroker(Arguments arguments) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Properties settings = brokerSettings(arguments);
        BrokerController controller = build(settings);
        require(controller.initialize(), "broker");
        controller.start();
        brokers.put(arguments, controller);
        String address = HOST + ":" + settings.getProperty("listenPort");
        for (String nameServer : settings.getProperty("namesrvAddr").split(";")) {
            awaitRegistration(controller, nameServer, address);
        }
        return Map.of("address", address);
    }

    /** The settings of the arguments, and for what they leave out a directory and free ports of the loopback address. */
    static Properties brokerSettings(Arguments arguments) {
        Properties settings = properties(arguments.object("settings"));
        settings.putIfAbsent("namesrvAddr", arguments.text("namesrv"));
        settings.putIfAbsent("bindAddress", HOST);
        settings.putIfAbsent("brokerIP1", HOST);
        settings.putIfAbsent("brokerIP2", HOST);
        settings.putIfAbsent("listenPort", Integer.toString(freePort(3)));
        settings.putIfAbsent("storePathRootDir", arguments.text("store"));
        settings.putIfAbsent("storePathCommitLog", arguments.text("store") + "/commitlog");
        int port = Integer.parseInt(settings.getProperty("listenPort"));
        settings.putIfAbsent("haListenPort", Integer.toString(port - 1));
        return settings;
    }

    /** A broker skips its first registration when its client has not connected yet; the next comes 10 s later. */
    private static void awaitRegistration(BrokerController controller, String nameServer, String address)
            throws Exception {
        RemotingCommand question = RemotingCommand.createRequestCommand(RequestCode.GET_BROKER_CLUSTER_INFO, null);
        boolean registered = Await.until(20_000, () -> {
            var client = controller.getBrokerOuterAPI().getRemotingClient();
            RemotingCommand answer = client.invokeSync(nameServer, question, 3_000);
            boolean knows = new String(answer.getBody(), StandardCharsets.UTF_8).contains('"' + address + '"');
            if (!knows) {
                controller.registerBrokerAll(true, false, true);
            }
            return knows;
        });
        require(registered, "broker's registration");
    }

    private static BrokerController build(Properties settings) {
        BrokerConfig broker = new BrokerConfig();
        NettyServerConfig server = new NettyServerConfig();
        NettyClientConfig client = new NettyClientConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        AuthConfig auth = new AuthConfig();
        for (Object config : new Object[] {broker, server, client, store, auth}) {
            MixAll.properties2Object(settings, config);
        }
        auth.setConfigName(broker.getBrokerName());
        auth.setClusterName(broker.getBrokerClusterName());
        auth.setAuthConfigPath(store.getStorePathRootDir() + "/config");
        boolean keepsUsers = auth.isAuthenticationEnabled() || auth.getAuthenticationMetadataProvider() != null;
        BrokerController controller = new BrokerController(broker, server, client, store, keepsUsers ? auth : null);
        controller.getConfiguration().registerConfig(settings);
        return controller;
    }

    @Command("broker.stop")
    Object stopBroker(Arguments arguments) {
        brokers.remove(arguments).shutdown();
        return null;
    }

    private static Properties properties(Arguments settings) {
        Properties properties = new Properties();
        JsonObject json = settings.json();
        json.entrySet().forEach(entry -> properties.setProperty(entry.getKey(), entry.getValue().getAsString()));
        return properties;
    }

    private static void require(boolean initialized, String what) {
        if (!initialized) {
            throw new IllegalStateException("the " + what + " did not initialize; its log is on stderr");
        }
    }

    /** The last of count neighbouring free ports: a broker also uses the two below its own. */
    static int freePort(int count) {
        for (int attempt = 0; attempt < 1000; attempt++) {
            int port = ThreadLocalRandom.current().nextInt(FIRST_PORT, LAST_PORT);
            if (areFree(port - count + 1, port)) {
                return port;
            }
        }
        throw new IllegalStateException("no free ports");
    }

    private static boolean areFree(int first, int last) {
        for (int port = first; port <= last; port++) {
            try (ServerSocket socket = new ServerSocket()) {
                socket.bind(new InetSocketAddress(HOST, port));
            } catch (IOException taken) {
                return false;
            }
        }
        return true;
    }
}
