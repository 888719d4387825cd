"""Select the rows that a step attends."""
