"""Layouts of PDFs as bills, forms, logs and books have them, each with what a good reading has."""

from . import bills, forms
from .layout import Layout

LAYOUTS: list[Layout] = [*bills.LAYOUTS, *forms.LAYOUTS]
