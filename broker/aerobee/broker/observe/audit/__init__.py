"""What an audit asks a broker: copies of what it knows, taken a little at a time."""
