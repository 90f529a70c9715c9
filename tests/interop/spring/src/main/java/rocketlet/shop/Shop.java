package rocketlet.shop;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.annotation.SelectorType;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Service;

/** Sends in each way of the template, and prints a line for what each answer and each listener says. */
@SpringBootApplication
public class Shop implements CommandLineRunner {
    private static final BlockingQueue<String> CONSUMED = new LinkedBlockingQueue<>();
    private static final int MESSAGES = 7;

    private final RocketMQTemplate template;
    private final String orders;
    private final String payments;
    private final String prices;

    public Shop(
            RocketMQTemplate template,
            @Value("${shop.orders}") String orders,
            @Value("${shop.payments}") String payments,
            @Value("${shop.prices}") String prices) {
        this.template = template;
        this.orders = orders;
        this.payments = payments;
        this.prices = prices;
    }

    public static void main(String[] arguments) {
        ConfigurableApplicationContext context = SpringApplication.run(Shop.class, arguments);
        System.exit(SpringApplication.exit(context));
    }

    @Override
    public void run(String... arguments) throws Exception {
        template.convertAndSend(orders + ":paid", new Order(1, "converted"));
        say("sync " + template.syncSend(orders + ":paid", new Order(2, "sync")).getSendStatus());
        say("orderly " + template.syncSendOrderly(orders + ":paid", new Order(3, "orderly"), "3").getSendStatus());
        say("delay " + template.syncSendDelayTimeSeconds(orders + ":paid", new Order(4, "delayed"), 1).getSendStatus());
        template.sendOneWay(orders + ":cancelled", new Order(5, "filtered out"));
        sendAsynchronously();
        pay(6, "commit");
        pay(7, "rollback");
        pay(8, "unknown");
        say("reply " + template.sendAndReceive(prices, "tea", String.class, 10_000));
        for (int count = 0; count < MESSAGES; count++) {
            String consumed = CONSUMED.poll(90, TimeUnit.SECONDS);
            say(consumed == null ? "nothing more was consumed" : "consumed " + consumed);
        }
    }

    private void sendAsynchronously() throws InterruptedException {
        BlockingQueue<String> answers = new LinkedBlockingQueue<>();
        template.asyncSend(orders + ":paid", new Order(9, "async"), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                answers.add(result.getSendStatus().name());
            }

            @Override
            public void onException(Throwable failure) {
                answers.add(failure.toString());
            }
        });
        say("async " + answers.poll(20, TimeUnit.SECONDS));
    }

    private void pay(int number, String outcome) {
        Message<Order> payment = MessageBuilder.withPayload(new Order(number, outcome)).build();
        TransactionSendResult result = template.sendMessageInTransaction(payments, payment, outcome);
        say("transaction " + result.getSendStatus() + " " + result.getLocalTransactionState());
    }

    private static synchronized void say(String line) {
        System.out.println("shop: " + line);
    }

    /** What is sent, as JSON. */
    public record Order(int number, String text) {
    }

    /** Consumes the paid orders. */
    @Service
    @RocketMQMessageListener(
            topic = "${shop.orders}", consumerGroup = "${shop.orders}-billing",
            selectorType = SelectorType.TAG, selectorExpression = "paid")
    public static class Billing implements RocketMQListener<Order> {
        @Override
        public void onMessage(Order order) {
            CONSUMED.add("order " + order.number() + " " + order.text());
        }
    }

    /** Consumes the payments that were committed, at once or when the broker asked. */
    @Service
    @RocketMQMessageListener(topic = "${shop.payments}", consumerGroup = "${shop.payments}-ledger")
    public static class Ledger implements RocketMQListener<Order> {
        @Override
        public void onMessage(Order payment) {
            CONSUMED.add("payment " + payment.number() + " " + payment.text());
        }
    }

    /** Answers requests. */
    @Service
    @RocketMQMessageListener(topic = "${shop.prices}", consumerGroup = "${shop.prices}-catalogue")
    public static class Catalogue implements RocketMQReplyListener<String, String> {
        @Override
        public String onMessage(String article) {
            return article + " costs 7";
        }
    }

    /** Does as the payment says; one of unknown outcome is committed when the broker asks. */
    @RocketMQTransactionListener
    public static class Payments implements RocketMQLocalTransactionListener {
        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object outcome) {
            return switch ((String) outcome) {
                case "commit" -> RocketMQLocalTransactionState.COMMIT;
                case "rollback" -> RocketMQLocalTransactionState.ROLLBACK;
                default -> RocketMQLocalTransactionState.UNKNOWN;
            };
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return RocketMQLocalTransactionState.COMMIT;
        }
    }
}
