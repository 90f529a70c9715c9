package rocketlet.interop;

import java.lang.reflect.Field;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** What all kinds of clients share. */
final class Clients {
    /** A disk or a machine that is busy with other tests may hold up a server for longer than Java's 3 s. */
    static final int ANSWER_LIMIT_MS = 10_000;

    /**
     * Until its first heartbeat a broker refuses the pulls of a group. One that a busy machine loses is to be followed by
     * another before a test gives up, which Java's 30 s are not.
     */
    private static final int HEARTBEAT_PERIOD_MS = 10_000;
    private static final long STOP_LIMIT_MS = 30_000;

    private Clients() {
    }

    /** An instance name of its own for each client, so that several live in one process with their own connections. */
    static String instance(String name) {
        return name + "#" + ProcessHandle.current().pid();
    }

    /** Gives a client the name server of the arguments and, unless they name one, an instance of its own. */
    static <T extends ClientConfig> T addressed(T client, Arguments arguments) {
        client.setNamesrvAddr(arguments.text("namesrv"));
        client.setHeartbeatBrokerInterval(HEARTBEAT_PERIOD_MS);
        client.setMqClientApiTimeout(ANSWER_LIMIT_MS);
        client.setInstanceName(arguments.text("instance", instance(arguments.text("name"))));
        return client;
    }

    /**
     * What signs the requests of a client in the name of the arguments, null without one. In 4.9.8 the class belongs to
     * a library that clients do not need, so it is looked for when it is asked for.
     */
    static RPCHook signer(Arguments arguments) throws ReflectiveOperationException {
        if (!arguments.has("accessKey")) {
            return null;
        }
        Class<?> credentials = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
        Object user = arguments.has("securityToken")
                ? credentials.getConstructor(String.class, String.class, String.class).newInstance(
                        arguments.text("accessKey"), arguments.text("secretKey"), arguments.text("securityToken"))
                : credentials.getConstructor(String.class, String.class).newInstance(
                        arguments.text("accessKey"), arguments.text("secretKey"));
        Class<?> hook = Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook");
        return (RPCHook) hook.getConstructor(credentials).newInstance(user);
    }

    /** Closes the connections of a client and lets it open no others: to the servers it died without a good-bye. */
    static void drop(MQClientInstance client) {
        client.getMQClientAPIImpl().getRemotingClient().shutdown();
    }

    /**
     * Makes the client and its groups known to the brokers of its topics now, not with the next timer. A client that is
     * just sending a heartbeat sends no other, so its lock is waited for.
     */
    static void announce(ClientConfig client) throws ReflectiveOperationException {
        MQClientInstance instance = MQClientManager.getInstance().getOrCreateMQClientInstance(client);
        Field field = MQClientInstance.class.getDeclaredField("lockHeartbeat");
        field.setAccessible(true);
        Lock sending = (Lock) field.get(instance);
        sending.lock();
        try {
            instance.sendHeartbeatToAllBrokerWithLock();
        } finally {
            sending.unlock();
        }
    }

    /**
     * Shuts a client down and returns when it has taken leave of the servers; its own threads may take 3 s more to end,
     * since one of them looks only that often whether it shall stop. One whose instance the test has named is waited for
     * to its end: the next of that name would be given the instance that is being closed.
     */
    static <T extends ClientConfig> void stop(T client, Consumer<T> shutdown) throws Exception {
        MQClientInstance shared = MQClientManager.getInstance().getOrCreateMQClientInstance(client);
        Thread stopping = new Thread(() -> shutdown.accept(client), "stopping");
        stopping.setDaemon(true);
        stopping.start();
        boolean isOwn = client.getInstanceName().endsWith(instance(""));
        Await.until(STOP_LIMIT_MS,
                () -> isOwn && shared.getPullMessageService().isStopped() || !stopping.isAlive());
    }

    static List<Map<String, Object>> sorted(Collection<MessageQueue> queues) {
        return queues.stream().sorted().map(Json::queue).toList();
    }
}
