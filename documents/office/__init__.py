"""Files of Word, Excel, PowerPoint and OpenDocument, old and new, and RTF."""
