"""Layouts of PDFs as bills, forms, tables, books and résumés have them, each with what a good reading has."""

from . import bills, books, forms, lives, sheets, tables
from .layout import Layout

LAYOUTS: list[Layout] = [layout for kind in (bills, forms, tables, books, lives, sheets) for layout in kind.LAYOUTS]
