"""What a check raises."""


class Violation(AssertionError):
    """A promise is broken."""
