"""The path of messages out of the log."""
