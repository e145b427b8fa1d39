"""The command `aerobee`: a local cluster, each service alone, and the tools to use them."""
