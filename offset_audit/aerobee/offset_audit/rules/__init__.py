"""What a finding is, and its wording: texts that Spark reads, and `aerobee doctor` without
Spark."""
