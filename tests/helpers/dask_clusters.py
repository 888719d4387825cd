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


class Killer:
    """Kills a worker of a cluster in the midst of a task, once. It connects before, so that few tasks end meanwhile.

    Attributes
    ----------
    killed : int or None
        The worker's process id.
    """

    def __init__(self, dask_cluster):
        self.killed = None
        self._client = distributed.Client(dask_cluster, set_as_default=False)
        self._pids = self._client.run(os.getpid)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self._client.close()

    def kill(self):
        """Kill a worker that has a task, if there is one at this moment."""
        busy = [address for address, keys in self._client.processing().items() if keys]
        if busy and self.killed is None:
            self.killed = self._pids[busy[0]]
            os.kill(self.killed, signal.SIGKILL)
