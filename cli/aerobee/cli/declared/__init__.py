"""What a cluster shall have, declared in a file: read, compared with what it has, and applied."""
