"""What the audit writes: Parquet, a summary, metrics and a report."""
