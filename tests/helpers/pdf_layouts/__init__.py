"""Layouts of PDFs as bills, forms, tables, books and résumés have them, each with what a good reading has."""

from . import bills, books, forms, lives, tables
from .layout import Layout

LAYOUTS: list[Layout] = [*bills.LAYOUTS, *forms.LAYOUTS, *tables.LAYOUTS, *books.LAYOUTS, *lives.LAYOUTS]
