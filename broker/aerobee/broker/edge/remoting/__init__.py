"""Remoting, RocketMQ's older protocol, as an edge of the broker."""
