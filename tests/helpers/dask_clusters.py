"""Dask clusters of processes of this machine, and a worker that dies at work."""

import os
import signal
from contextlib import contextmanager

import pytest

distributed = pytest.importorskip("distributed")


@contextmanager
def two_workers():
    """Yield a cluster of two processes with a thread each."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made:
        yield made


def kill_a_worker(dask_cluster):
    """Kill a worker that has a task; returns its process id."""
    with distributed.Client(dask_cluster, set_as_default=False) as client:
        pids = client.run(os.getpid)
        busy = [address for address, keys in client.processing().items() if keys]
    os.kill(pids[busy[0]], signal.SIGKILL)
    return pids[busy[0]]
