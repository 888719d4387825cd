"""A clock for modules that ask for the time."""


class Clock:
    """Stands still until a test sets it: in the place of the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now
