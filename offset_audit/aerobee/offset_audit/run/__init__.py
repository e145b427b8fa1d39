"""One run of the audit, from the command line to the exit code."""
