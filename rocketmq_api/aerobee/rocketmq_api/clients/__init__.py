"""What clients are told about themselves: settings, delays, and workarounds for each language."""
