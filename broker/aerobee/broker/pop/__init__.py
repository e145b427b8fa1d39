"""Messages that are received without a lease: handed out, invisible for a while, acknowledged."""
