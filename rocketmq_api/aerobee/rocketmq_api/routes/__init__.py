"""Where queues are, as clients are told."""
