"""What is a finding, and its words: texts that Spark reads, and `aerobee doctor` without it."""
