"""The one exception that users see."""


class OctavoError(Exception):
    """Something a user can act on: its message is a sentence that says what to do."""


class BudgetTooSmall(OctavoError):
    """A budget that looking up what matters would exceed."""
