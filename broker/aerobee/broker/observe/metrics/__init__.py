"""What a broker exports to Prometheus."""
