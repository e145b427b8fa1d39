"""Real events through a real cluster, a consumer killed on the way, and a proof of the result."""
