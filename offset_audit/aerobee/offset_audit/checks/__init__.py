"""What the audit judges: one pure function per file, from tables to findings."""
