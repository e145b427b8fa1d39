"""The audit's rules applied, without Spark, to what brokers report now: one reading, no history, no
bytes."""
