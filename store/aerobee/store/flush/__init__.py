"""The threads that make appended bytes durable, and the policy of when."""
