"""Questions to answers with sources, over open documents."""
