"""Choose the rows that a step attends."""
