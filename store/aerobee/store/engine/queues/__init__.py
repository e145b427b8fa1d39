"""Consume queues: from a message's place in its queue to its position in the log."""
