"""The key index: from `topic#key` to positions of records in the log."""
