"""Index many documents: one after another, in several processes, on a cluster, or as they appear in a folder.

The processes and the cluster do other work as well (work.py, cluster.py).
"""
