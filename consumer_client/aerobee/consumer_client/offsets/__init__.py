"""Where a consumer's committed offsets are kept: at the brokers, or in a local file."""
