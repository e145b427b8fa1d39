"""Store folders without a broker: what they hold, whether it is sound, and how to repair it."""
