"""Figures of a running service, for Prometheus."""
