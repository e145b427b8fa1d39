"""The way of messages out of the log."""
