"""Extract the text of documents of many kinds, as one Markdown text, with the starts of its pages and headings."""
