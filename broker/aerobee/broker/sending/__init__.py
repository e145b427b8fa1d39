"""The path of messages into the log, until they are acknowledged."""
