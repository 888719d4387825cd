"""Work in other processes, here and on a cluster."""
