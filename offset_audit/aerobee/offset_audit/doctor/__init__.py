"""The audit's rules on what brokers say now, without Spark: one reading, no history, no bytes."""
