"""What the broker and the nameservers tell each other."""
