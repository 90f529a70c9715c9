"""The timer wheel and its log: messages for a time. Delivery itself is the broker's."""
