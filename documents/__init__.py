"""Read the documents that people have: as one text in Markdown, and where its pages and headings begin."""
