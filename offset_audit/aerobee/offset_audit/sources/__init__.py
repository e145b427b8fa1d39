"""Where the audit reads: Spark data sources over live brokers and over store directories."""
