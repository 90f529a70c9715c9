package shop;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/** Gives tests one broker for the whole run, and begins and ends each of them there. */
final class RocketletExtension implements BeforeEachCallback, AfterEachCallback, ParameterResolver {
    private static final ExtensionContext.Namespace OURS = ExtensionContext.Namespace.create(RocketletExtension.class);

    /** The store of a run closes what is in it. */
    private record Running(Rocketlet broker) implements ExtensionContext.Store.CloseableResource {
        @Override
        public void close() throws Exception {
            broker.close();
        }
    }

    private static Rocketlet broker(ExtensionContext context) {
        return context.getRoot().getStore(OURS).getOrComputeIfAbsent("broker", name -> start(), Running.class).broker();
    }

    private static Running start() {
        try {
            return new Running(new Rocketlet());
        } catch (Exception error) {
            throw new IllegalStateException("there is no broker: pip install 'rocketlet[control]'", error);
        }
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        broker(context).beginTest(context.getRequiredTestMethod().getName());
    }

    @Override
    public void afterEach(ExtensionContext context) {
        broker(context).endTest();
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == Rocketlet.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return broker(context);
    }
}
