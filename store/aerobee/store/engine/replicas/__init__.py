"""A log that is a copy of another's: its appends, and what is done to it while it is closed."""
