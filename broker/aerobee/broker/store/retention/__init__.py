"""What leaves the log again: when, in which order, and what is said about it."""
