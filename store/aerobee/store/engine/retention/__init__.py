"""What is removed from the log: when, in which order, and how it is reported."""
