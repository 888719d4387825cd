"""The application, security, and how requests are read and answered."""
