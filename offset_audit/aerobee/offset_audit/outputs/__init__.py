"""What the audit leaves behind: Parquet, a summary, metrics and a report."""
