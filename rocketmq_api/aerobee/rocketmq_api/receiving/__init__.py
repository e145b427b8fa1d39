"""Records on their way to a client, and what it can do with a message that it has."""
