"""How threads wait for each other: in a loop while cores are free for them, else asleep."""

import json
import subprocess
import sys
import time

import pytest

import octavo
from octavo.system import threads
from octavo.system.processors import Look
from octavo.system.threads import Waiting

#: Has two threads of OpenMP meet often, with pauses; prints the seconds that they computed, looping and asleep.
MEET = """
import ctypes, json, time
from octavo.system.threads import Waiting, _of_openmp

start = _of_openmp("GOMP_parallel")
nothing = ctypes.cast(_of_openmp("omp_get_thread_num"), ctypes.c_void_p)

def computed():
    before = time.process_time()
    for _ in range(50):
        start(nothing, None, ctypes.c_uint(2), ctypes.c_uint(0))
        time.sleep(0.004)
    return time.process_time() - before

waiting, found = Waiting(), [computed()]
for sleeping in (True, True, False):
    waiting._sleep(sleeping)
    time.sleep(0.1)
    found.append(computed())
print(json.dumps(found))
"""

has_gnu_openmp = threads._of_openmp("GOMP_parallel") is not None and threads.usable_cpus() > 1


@pytest.fixture
def waiting(monkeypatch):
    """How threads wait, with nothing that the user chose."""
    for name in threads._CHOSEN:
        monkeypatch.delenv(name, raising=False)
    waiting = Waiting()
    monkeypatch.setattr("octavo.runtime.context.waiting", waiting)
    yield waiting
    waiting._sleep(False)


@pytest.mark.skipif(not has_gnu_openmp, reason="needs GCC's OpenMP, and two cores")
def test_threads_sleep_and_loop_again():
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}  # without OMP_WAIT_POLICY
    run = subprocess.run([sys.executable, "-c", MEET], env=environment, capture_output=True, text=True, check=True)
    looping, *asleep, again = json.loads(run.stdout)
    assert min(looping, again) > 5 * max(asleep)


@pytest.mark.parametrize(
    ("n_threads", "others", "sleep"),
    [(4, 0.0, False), (4, 0.2, False), (4, 0.3, True), (4, 7.0, True), (2, 2.0, False), (2, 2.3, True)],
)
def test_threads_sleep_where_others_need_their_cores(waiting, monkeypatch, n_threads, others, sleep):
    monkeypatch.setattr(threads, "usable_cpus", lambda: 4)
    waiting._last = Look(100.0, 10.0, 0.0)
    assert waiting._others_work(n_threads, Look(101.0, 10.0 + others + n_threads, float(n_threads))) == sleep


def test_what_others_do_is_unknown_after_a_pause_but_not_after_a_long_step(waiting):
    waiting._last, waiting._ended = Look(100.0, 0.0, 0.0), 100.0
    assert waiting._others_work(2, Look(200.0, 0.0, 0.0))
    waiting._last, waiting._ended = Look(100.0, 0.0, 0.0), 199.9
    assert not waiting._others_work(2, Look(200.0, 0.0, 0.0))


def test_steps_look_at_others_now_and_then(waiting, monkeypatch, tiny_model):
    looks = []
    monkeypatch.setattr(Waiting, "_others_work", lambda self, n_threads, now: looks.append(n_threads))
    llama = octavo.Llama(tiny_model, n_ctx=256, n_threads=2, n_threads_batch=2)
    waiting._last = Look(time.monotonic() - 1, 0.0, 0.0)
    llama.eval([1, 2])
    assert looks == [2]
    waiting._last = Look(time.monotonic() + 60, 0.0, 0.0)
    llama.eval([3])
    assert looks == [2]
    llama.close()


@pytest.mark.parametrize("how", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "1000"}, {"n_threads": 1}])
def test_what_the_user_chose_stays(waiting, monkeypatch, how):
    n_threads = how.pop("n_threads", 2)
    for name, value in how.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Waiting, "_others_work", lambda *_: pytest.fail("looked"))
    waiting._last = Look(0.0, 0.0, 0.0)
    with waiting.step(n_threads):
        pass


def test_without_gnu_openmp_nothing_changes(waiting, monkeypatch):
    monkeypatch.setattr(threads, "_of_openmp", lambda name: None)
    waiting._sleep(True)
    waiting._sleep(False)
