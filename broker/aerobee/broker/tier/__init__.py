"""Full segments of the log go to an object store; they stay on the disk until they are there."""
