"""Groups' offsets: one pure rule merges them; a journal in the log stores and replicates them."""
