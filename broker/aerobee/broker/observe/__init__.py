"""What a broker reports about itself: figures, health, readings for audits."""
