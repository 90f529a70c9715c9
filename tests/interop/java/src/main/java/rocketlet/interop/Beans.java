package rocketlet.interop;

import com.google.gson.JsonElement;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Map;

/** Sets the properties of RocketMQ's configuration beans by name, so that no setting needs code of its own. */
final class Beans {
    private Beans() {
    }

    /** Calls {@code setName(value)} for each entry; enums are given by name, lists and objects as JSON. */
    static <T> T apply(T bean, Arguments settings) throws ReflectiveOperationException {
        for (Map.Entry<String, JsonElement> setting : settings.json().entrySet()) {
            Method setter = setter(bean.getClass(), setting.getKey());
            setter.invoke(bean, (Object) Json.GSON.fromJson(setting.getValue(), setter.getGenericParameterTypes()[0]));
        }
        return bean;
    }

    /** Makes one of the client's allocation strategies by the name of its class. */
    static <T> T strategy(Class<T> kind, String name) throws ReflectiveOperationException {
        Class<?> found = Class.forName("org.apache.rocketmq.client.consumer.rebalance." + name);
        return kind.cast(found.getDeclaredConstructor().newInstance());
    }

    private static Method setter(Class<?> type, String name) {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        return Arrays.stream(type.getMethods())
                .filter(method -> method.getName().equals(setter) && method.getParameterCount() == 1)
                .findFirst()
                .orElseThrow(() -> new IllegalArgumentException(type.getSimpleName() + " has no setting " + name));
    }
}
