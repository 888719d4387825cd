"""Mail, and files of Outlook."""
