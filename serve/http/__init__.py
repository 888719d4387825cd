"""The application, its security, and the reading and answering of requests."""
