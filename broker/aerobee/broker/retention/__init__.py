"""What keeps old segments, and their removal."""
