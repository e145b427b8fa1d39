"""What an audit asks of a broker: copies of what it knows, taken a little at a time."""
