"""From the files of the last run to a store that continues where it ended."""
