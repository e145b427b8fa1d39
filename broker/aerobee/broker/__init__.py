"""The broker: takes messages in, keeps them, hands them out, and knows who consumes what."""
