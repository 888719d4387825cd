"""The version of octavo."""

__version__ = "0.3.0"
