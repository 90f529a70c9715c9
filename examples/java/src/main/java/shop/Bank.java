package shop;

/** Whoever has the money of the customers. */
interface Bank {
    enum Charge { ACCEPTED, DECLINED, PENDING }

    /** Asks for the price of an order; the payment is named again when the bank decides later. */
    Charge charge(Order order, String payment);
}
