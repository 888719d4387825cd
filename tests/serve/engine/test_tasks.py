"""Other tasks of the engine's thread: in steps, and in turns."""

import asyncio

import pytest

from octavo.serve.engine.tasks import Tasks, once


def counting(name, n, told):
    try:
        for number in range(n):
            told.append(f"{name}{number}")
            yield
    finally:
        told.append(f"{name} ends")
    return name


def test_tasks_take_turns_and_return_results():
    tasks, told = Tasks(), []
    a, b = tasks.add(counting("a", 2, told)), tasks.add(once(lambda: told.append("b") or 7))
    assert tasks
    while tasks:
        tasks.run_step()
    assert told == ["a0", "b", "a1", "a ends"]
    assert (a.result(0), b.result(0)) == ("a", 7)
    tasks.run_step()


def test_a_failure_is_the_tasks_own():
    tasks = Tasks()
    failing, other = tasks.add(once(lambda: 1 // 0)), tasks.add(once(lambda: 5))
    while tasks:
        tasks.run_step()
    with pytest.raises(ZeroDivisionError):
        failing.result(0)
    assert other.result(0) == 5


def test_a_task_that_nobody_waits_for_does_not_begin():
    tasks, told = Tasks(), []
    tasks.add(counting("a", 2, told)).cancel()
    tasks.run_step()
    assert (told, bool(tasks)) == ([], False)


def test_a_task_whose_caller_is_cancelled_ends_before_its_next_step():
    tasks, told = Tasks(), []

    async def wait():
        waiting = asyncio.create_task(tasks.result(tasks.add(counting("a", 3, told))))
        b = asyncio.create_task(tasks.result(tasks.add(counting("b", 2, told))))
        await asyncio.sleep(0)
        tasks.run_step()
        waiting.cancel()
        await asyncio.wait({waiting})
        while tasks:
            tasks.run_step()
        return await b

    assert asyncio.run(wait()) == "b"
    assert told == ["a0", "b0", "a ends", "b1", "b ends"]


def test_tasks_that_cannot_go_on_are_ended():
    tasks, told = Tasks(), []
    begun, waiting = tasks.add(counting("a", 2, told)), tasks.add(counting("b", 2, told))
    tasks.run_step()
    tasks.fail(ValueError("stop"))
    assert told == ["a0", "a ends"]
    for future in (begun, waiting):
        with pytest.raises(ValueError, match="stop"):
            future.result(0)
