package shop;

/** The names of topics and groups; tests that share a broker have names of their own. */
record Places(String orders, String deadlines, String counter, String warehouse, String cancellation) {}
