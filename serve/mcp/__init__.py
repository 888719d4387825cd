"""octavo's documents as tools of the Model Context Protocol, for programs that call tools."""
