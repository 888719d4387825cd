"""The one exception that users see."""


class OctavoError(Exception):
    """A problem that a user can act on. Its message is a sentence that says what to do."""


class BudgetTooSmall(OctavoError):
    """The budget is smaller than the cost of the lookup alone."""
