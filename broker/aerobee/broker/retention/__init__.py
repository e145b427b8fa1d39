"""What keeps old segments, and how they are removed."""
