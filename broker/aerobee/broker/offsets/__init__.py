"""Groups' offsets: one pure rule merges them, a journal in the log keeps and replicates them."""
