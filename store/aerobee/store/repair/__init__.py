"""Checks whether a store's files are as they should be, and repairs them."""
