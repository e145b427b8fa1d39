"""The console: web pages on a cluster, by the public `AdminClient` alone."""
