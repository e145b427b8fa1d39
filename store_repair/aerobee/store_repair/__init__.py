"""Whether a store's files are what they should be, and how to bring them back in order."""
