"""Consume queues: from a message's place in its queue to its place in the log."""
