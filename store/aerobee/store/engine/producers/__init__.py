"""What producers have sent recently, so that resent batches are not stored again."""
