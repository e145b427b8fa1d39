"""A log that is the copy of another's: its appends, and what is done to it while it is closed."""
