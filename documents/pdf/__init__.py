"""PDF: characters, lines, tables and layout."""
