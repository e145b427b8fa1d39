"""Messages on their way from a client to a record."""
