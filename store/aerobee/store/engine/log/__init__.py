"""The commit log: segments, appends, reads, and the walk over its records."""
