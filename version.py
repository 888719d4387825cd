"""The version of octavo."""

__version__ = "0.4.0"
