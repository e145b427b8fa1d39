"""The key index: from `topic#key` to the places of records in the log."""
