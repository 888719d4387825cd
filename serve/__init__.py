"""The server: OpenAI's and Anthropic's APIs over a library of documents, and a page for the browser."""
