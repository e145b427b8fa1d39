"""How a group's members share the queues of a topic: pure functions that all of them compute."""
