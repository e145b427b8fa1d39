"""What clients are told about themselves: settings, delays, traps of each language."""
