package shop;

import java.util.UUID;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A small shop: it takes orders and payments, its warehouse ships what is paid, and unpaid orders are cancelled.
 *
 * <p>A payment is the local transaction of its message. What is not in stock is tried again after 10 s, 30 s and 1 min;
 * then the order is a dead letter. Each order sends a message for the hour at which it must be paid.
 */
final class Shop implements AutoCloseable {
    private static final int RETRIES = 3;
    private static final int HALF_AN_HOUR = 16; // of the levels of delay

    final Orders orders = new Orders();
    final Stock stock = new Stock();
    private final Bank bank;
    private final Places places;
    private final TransactionMQProducer producer;
    private final DefaultMQPushConsumer warehouse;
    private final DefaultMQPushConsumer cancellation;

    Shop(String nameserver, Places places, Bank bank) throws Exception {
        this.bank = bank;
        this.places = places;
        // One connection for all: the producer can be asked about its transactions as soon as the consumers are known.
        String instance = UUID.randomUUID().toString();
        producer = new TransactionMQProducer(places.counter());
        producer.setNamesrvAddr(nameserver);
        producer.setInstanceName(instance);
        producer.setTransactionListener(new Payments());
        producer.start();
        warehouse = consumer(nameserver, instance, places.warehouse());
        warehouse.setMaxReconsumeTimes(RETRIES);
        warehouse.subscribe(places.orders(), "paid");
        warehouse.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ship(messages.get(0)));
        warehouse.start();
        cancellation = consumer(nameserver, instance, places.cancellation());
        cancellation.subscribe(places.deadlines(), "payment");
        cancellation.registerMessageListener((MessageListenerConcurrently) (messages, context) -> cancel(messages.get(0)));
        cancellation.start();
    }

    private static DefaultMQPushConsumer consumer(String nameserver, String instance, String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    /** Takes an order, which is to be paid within half an hour. */
    Order place(String item, int quantity) throws Exception {
        Order order = new Order(UUID.randomUUID().toString().substring(0, 8), item, quantity);
        orders.add(order);
        producer.send(order.message(places.orders(), "placed"));
        Message deadline = order.message(places.deadlines(), "payment");
        deadline.setDelayTimeLevel(HALF_AN_HOUR);
        producer.send(deadline);
        return order;
    }

    /** Has an order paid, and returns how far it is. */
    Orders.State pay(Order order) throws Exception {
        producer.sendMessageInTransaction(order.message(places.orders(), "paid"), order);
        return orders.state(order.id());
    }

    private ConsumeConcurrentlyStatus ship(MessageExt message) {
        Order order = Order.of(message);
        return stock.take(order) ? tell(order, "shipped") : ConsumeConcurrentlyStatus.RECONSUME_LATER;
    }

    private ConsumeConcurrentlyStatus cancel(MessageExt message) {
        Order order = Order.of(message);
        return orders.cancel(order.id()) ? tell(order, "cancelled") : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    }

    private ConsumeConcurrentlyStatus tell(Order order, String state) {
        try {
            producer.send(order.message(places.orders(), state));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        } catch (Exception error) { // whatever it is, the message comes again
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
    }

    @Override
    public void close() {
        cancellation.shutdown();
        warehouse.shutdown();
        producer.shutdown();
    }

    private final class Payments implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            Order order = (Order) argument;
            String payment = message.getTransactionId();
            return switch (bank.charge(order, payment)) {
                case ACCEPTED -> orders.pay(order.id(), payment)
                        ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
                case DECLINED -> LocalTransactionState.ROLLBACK_MESSAGE;
                case PENDING -> LocalTransactionState.UNKNOW;
            };
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String id = message.getKeys();
            if (orders.state(id) == Orders.State.PLACED) {
                return LocalTransactionState.UNKNOW;
            }
            return orders.isPaidBy(id, message.getTransactionId())
                    ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }
}
