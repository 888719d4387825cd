"""Threads that ggml keeps for a thread that computed are let go before another one computes."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from octavo import Llama
from octavo.ask.session import Session
from octavo.settings import Sampling
from octavo.system.threads import release_threads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")


def count_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.fixture
def llama(tiny_model, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # else others' work starts threads
    llama = Llama(tiny_model, n_ctx=256, n_threads=2, n_threads_batch=2, verbose=False)
    release_threads()  # those that loaded it, and those of the tests before
    yield llama
    llama.close()


def test_release_ends_the_threads_of_a_step(llama):
    before = count_threads()
    llama.eval([1, 2])
    assert count_threads() == before + 1
    release_threads()
    assert count_threads() == before


def test_an_answer_in_another_thread_leaves_no_thread_but_its_own(llama):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(threading.get_ident).result()
        before = count_threads()
        llama.eval([1, 2])
        session = Session(llama, Sampling(max_tokens=4))
        pool.submit(session.ask, "Who?").result()
        assert count_threads() == before
