"""Wait for what another thread or process does."""

import time


def wait_until(holds, seconds=60):
    """Wait until `holds()`; fail after some seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
