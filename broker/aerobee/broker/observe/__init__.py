"""What a broker tells of itself: figures, health, readings for audits."""
