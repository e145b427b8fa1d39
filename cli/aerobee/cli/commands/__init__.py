"""One module per command; each is imported only when it runs (see `aerobee.cli.__main__`)."""
