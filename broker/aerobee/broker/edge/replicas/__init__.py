"""Streams between the replicas of one log."""
