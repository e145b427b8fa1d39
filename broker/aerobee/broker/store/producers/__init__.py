"""What producers have sent lately, so that what they send again is not stored again."""
