"""Messages that a group could not handle: they come back later, and end as dead letters."""
