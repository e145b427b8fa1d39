"""What the audit judges: one pure function a file, from tables to findings."""
