"""From the files of the last run to a store that goes on where it ended."""
