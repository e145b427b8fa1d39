"""Whose turn it is on the threads that read old messages, and at which pace."""
