"""Metrics of a running service, for Prometheus."""
