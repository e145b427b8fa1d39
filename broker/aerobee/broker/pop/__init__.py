"""Messages received without a lease: handed out, invisible for a while, acknowledged."""
