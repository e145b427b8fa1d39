"""Records on their way to a client, and what it may do with a message that it has."""
