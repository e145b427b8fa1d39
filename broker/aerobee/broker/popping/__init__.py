"""POP at work: polls, what clients say of messages, and the journal of it; decisions are in pop/."""
