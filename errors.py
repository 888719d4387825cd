"""The one exception that users see."""


class OctavoError(Exception):
    """A problem that a user can act on. Its message is a sentence that says what to do."""
