"""The engine: one thread that computes the answers of many requests on one model.

Each turn reads one batch of a prompt, or of several short ones, and then one token of each running answer: so a long
prompt delays a stream by no more than a batch. One step reads the tokens of all answers, and so the weights only once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ...errors import OctavoError
from ...runtime.llama import Llama
from ...runtime.query_recorder import QueryHead
from ...system.working_time import working_time
from ..request_error import RequestError
from .prompt_limits import PromptLimits
from .request import AnswerPart, End, Request, TokenLogprob, Totals
from .running_request import RunningRequest
from .sampler import check_bias, token_logprob
from .sequences import Sequences
from .tasks import Tasks, once
from .turns import Turns, WaitingLine

if TYPE_CHECKING:
    from ...library.source_text import SourceText

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

#: Factor by which a prompt's batch is smaller while answers wait for it.
_SMALLER = 4

#: Seconds without work after which the engine rests.
_REST_AFTER = 1.0

#: Least limit of the number of tasks: a server without a queue of requests has tasks, too.
_FEWEST_TASKS = 8

#: Most sources of an answer, unless its sentences are marked with more.
_MOST_SOURCES = 3

#: Tokens of a step with logits: each has one number for each token of the vocabulary.
_WITH_LOGITS = 64


class Engine:
    """Generate answers for many requests at once, in a thread of its own.

    Parameters
    ----------
    llama : Llama
        The model. Only the engine evaluates on it.
    name : str
        Name of the model for clients.
    sequences : Sequences
        The conversations in memory.
    heads : sequence of QueryHead
        Retrieval heads, which find sources; may be empty.
    n_running : int
        Largest number of running requests.
    n_waiting : int
        Largest number of waiting requests.
    timeout : float
        Seconds after which a request fails.
    turns : Turns, optional
        The turns of this engine among those of other models.

    Attributes
    ----------
    when_busy : callable
        Receives True when the engine begins to compute, and False when it has rested for a moment; in its thread.
    """

    def __init__(
        self,
        llama: Llama,
        name: str,
        sequences: Sequences,
        heads: Sequence[QueryHead],
        *,
        n_running: int,
        n_waiting: int,
        timeout: float,
        turns: Turns | None = None,
    ) -> None:
        self.llama, self.name, self.sequences, self.totals = llama, name, sequences, Totals()
        self._heads, self._n_running, self._n_waiting, self._timeout = heads, n_running, n_waiting, timeout
        self.limits, self._turns = PromptLimits(llama), turns or Turns()
        self._changed = threading.Condition()
        self._waiting = WaitingLine()
        self._running: list[RunningRequest] = []
        self._forgotten: list[Callable[[SourceText], bool]] = []
        self._tasks = Tasks()
        self._closing, self._failed = False, False
        self.when_busy: Callable[[bool], None] = lambda is_busy: None
        self._thread = threading.Thread(target=self._work, name="octavo-engine")
        self._thread.start()

    @property
    def n_parallel(self) -> int:
        """Return the largest number of running requests."""
        return self._n_running

    @property
    def n_running(self) -> int:
        """Return the number of running requests."""
        return len(self._running)

    @property
    def n_waiting(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    async def stream(self, request: Request) -> AsyncGenerator[AnswerPart | End, None]:
        """Generate an answer. Closing the generator stops the work.

        Yields
        ------
        AnswerPart or End
            The pieces of the answer, and its end.

        Raises
        ------
        RequestError
            The prompt does not fit the context, or too many requests wait.
        OctavoError
            The work failed.
        """
        loop, events = asyncio.get_running_loop(), asyncio.Queue[AnswerPart | End | BaseException]()

        def tell(event: AnswerPart | End | BaseException) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(events.put_nowait, event)

        running = RunningRequest(request, tell)
        with self._changed:
            self.check(request)
            self._waiting.add(running)
            self._changed.notify()
        try:
            while True:
                event = await events.get()
                if isinstance(event, BaseException):
                    raise event
                yield event
                if isinstance(event, End):
                    return
        finally:
            running.cancelled = True

    def check(self, request: Request) -> None:
        """Check that the engine would accept a request now.

        Raises
        ------
        RequestError
            Its prompt has no tokens, or leaves no room for an answer; a biased token does not exist; too many requests
            wait; or the engine answers none.
        """
        self.limits.check(request.n_prompt)
        check_bias(request.generation.logit_bias, self.llama.n_vocab())
        self._check_answers()
        if len(self._waiting) >= self._n_waiting:
            raise RequestError(f"{len(self._waiting)} requests wait already: try again later.", 503)

    async def run(self, task: Callable[[], _Result]) -> _Result:
        """Run another task on the model in its turn, and return its result. It should take no longer than a batch.

        Raise RequestError if the server is stopping.
        """
        return await self.run_steps(once(task))

    async def run_steps(self, steps: Generator[None, None, _Result]) -> _Result:
        """Run a task in several turns, a step in each, as `run` does. Other sequences are computed between its steps.

        A task whose caller is cancelled ends before its next step.

        Parameters
        ----------
        steps : generator
            Yields after each step, which should take no longer than a batch, and returns the result.
        """
        with self._changed:
            self._check_answers()
            if len(self._tasks) >= max(self._n_waiting, _FEWEST_TASKS):
                raise RequestError(f"{len(self._tasks)} tasks wait already: try again later.", 503)
            future = self._tasks.add(steps)
            self._changed.notify()
        return await self._tasks.result(future)

    @property
    def has_failed(self) -> bool:
        """Return whether the engine answers no more: it has ended by an error, or its model's file has changed."""
        return self._failed or self.llama.files.have_changed()

    def refusal(self) -> RequestError:
        """Return the error of requests that an engine does not answer which closes or has failed."""
        if self._failed:
            return RequestError(f"The engine of {self.name} has failed: start the server again. Its log says why.", 503)
        if self.llama.files.have_changed():
            changed = f"The file of {self.name} has changed since the model was loaded: start the server again."
            return RequestError(changed, 503)
        return RequestError("The server is stopping.", 503)

    def _check_answers(self) -> None:
        """Raise RequestError if the engine answers no requests."""
        if self._closing or self.has_failed:
            raise self.refusal()

    @property
    def room(self) -> int:
        """Return the number of tokens of a prompt's batch now: it is smaller while answers wait for it."""
        answering = any(not running.unread for running in self._running)
        return self.llama.n_batch // _SMALLER if answering else self.llama.n_batch

    def forget(self, is_removed: Callable[[SourceText], bool]) -> None:
        """Forget conversations over a removed document, once no request uses it."""
        with self._changed:
            self._forgotten.append(is_removed)
            self._changed.notify()

    def stop(self) -> None:
        """Fail all running requests, and accept no more."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def close(self) -> None:
        """Stop, and keep the prompts."""
        self.stop()
        self._thread.join()

    @property
    def _has_work(self) -> bool:
        return bool(self._waiting or self._running or self._forgotten or self._tasks or self._closing)

    def _work(self) -> None:
        """Take turns until the engine is closed. Whatever happens, every request gets an answer or an error."""
        try:
            self._take_turns()
        except BaseException:
            _log.critical("The engine of %s has failed.", self.name, exc_info=True)
            self._failed = True
        with self._changed:
            self._closing = True
            left = [*self._running, *self._waiting.take_all()]
            self._running.clear()
        for running in left:
            running.fail(self.refusal())
            running.close()
        self._tasks.fail(self.refusal())
        self.sequences.close()
        self.when_busy(False)

    def _take_turns(self) -> None:
        is_busy = False
        while True:
            with self._changed:
                if is_busy and not self._changed.wait_for(lambda: self._has_work, _REST_AFTER):
                    is_busy = False
                    self.when_busy(False)
                if not is_busy:
                    self._changed.wait_for(lambda: self._has_work)
                    is_busy = True
                    self.when_busy(True)
            if self._closing:
                return
            try:
                with self._turns.turn():
                    self._turn()
            except Exception as problem:
                _log.exception("A turn of the engine failed.")
                for running in list(self._running):
                    self._leave(running, problem)

    def _turn(self) -> None:
        """Do one batch of a prompt, or of several short ones, one token of each answer, and a step of one task."""
        while self._forgotten:
            self.sequences.forget(self._forgotten.pop())
        self._give_up()
        self._admit()
        answering = [running for running in self._running if not running.unread]
        reading = [running for running in self._running if running.unread]
        room = self.room
        for number, running in enumerate(reading):
            if number > 0 and len(running.unread) > room:
                break
            self._running.remove(running)  # the next turn serves another one
            self._running.append(running)
            n_tokens = min(len(running.unread), room)
            self._read(running, n_tokens)
            room -= n_tokens
        if answering:
            self._answer(answering)
        self._tasks.run_step()

    def _give_up(self) -> None:
        """End requests whose client has gone, those that exceed the timeout, and all if the model has changed."""
        has_changed, late = self.llama.files.have_changed(), working_time() - self._timeout
        problem = RequestError(f"The request took more than {self._timeout:,.0f} s, so it was given up.", 504)
        if has_changed:
            problem = self.refusal()

        def ends(running: RunningRequest) -> bool:
            return has_changed or running.cancelled or running.put < late

        with self._changed:
            for running in self._waiting.take_all(ends):
                self._refuse(running, None if running.cancelled else problem)
        for running in list(filter(ends, self._running)):
            self._leave(running, None if running.cancelled else problem)

    def _admit(self) -> None:
        """Begin requests that wait, as many as may run."""
        while self._waiting and len(self._running) < self._n_running:
            with self._changed:
                running = self._waiting.take_next(self._running)
            self.totals.requests += 1
            running.started = working_time()
            try:
                self.sequences.begin(running)
            except Exception as problem:
                self._refuse(running, problem)
                continue
            self._running.append(running)
            if running.request.generation.sources:
                running.find_sources(self.llama, self._heads)
            if running.request.generation.reports_progress:
                running.report()  # the tokens that are known

    def _refuse(self, running: RunningRequest, problem: Exception | None) -> None:
        """End a request that has not begun, or no longer has a sequence."""
        if problem is None:
            self.totals.cancelled += 1
        else:
            self._tell_failure(running, problem)
        running.close()

    def _tell_failure(self, running: RunningRequest, problem: Exception) -> None:
        self.totals.failed += 1
        if not isinstance(problem, OctavoError):
            _log.error("A request failed.", exc_info=problem)
            problem = RequestError(f"The server failed: {type(problem).__name__}. Its log says more.", 500)
        running.fail(problem)

    def _leave(self, running: RunningRequest, problem: Exception | None) -> None:
        """End a request before its answer ends."""
        self._running.remove(running)
        self._put_back(running)
        self._refuse(running, problem)

    def _put_back(self, running: RunningRequest) -> None:
        """Return a request's sequence to the pool. An error there is none of the request's, or of others."""
        assert running.sequence is not None
        running.sequence.recorder = running.sequence.drafter = None
        try:
            self.sequences.end(running.sequence)
        except Exception:
            _log.exception("A conversation could not be put back.")

    def _read(self, running: RunningRequest, n_batch: int) -> None:
        """Read the next batch of a prompt; after the last one, draw the first token."""
        llama, sequence, request = self.llama, running.sequence, running.request
        assert sequence is not None
        batch, is_step = running.take_unread(n_batch)
        try:
            self.sequences.take(sequence)
            if request.generation.of_prompt:
                self._read_with_logprobs(running, batch)
            else:
                self.sequences.read(batch, is_step, is_last=not running.unread)
            if request.generation.reports_progress:
                running.report()
            if running.unread:
                return
            recorder = sequence.recorder
            if recorder is not None:
                del recorder.steps[:-1]  # the question but for its last token
            if request.generation.answers:
                running.draw(llama, -1)
            else:
                running.end_at_once()
            self.sequences.keep(sequence)
        except Exception as problem:
            self._leave(running, problem)
            return
        self._end_if_ended(running)

    def _read_with_logprobs(self, running: RunningRequest, tokens: list[int]) -> None:
        """Read tokens, and note the log probability of each; nothing predicts the first."""
        llama, n_top = self.llama, running.request.generation.n_logprobs or 0
        for start in range(0, len(tokens), _WITH_LOGITS):
            piece = tokens[start : start + _WITH_LOGITS]
            logits = llama.eval_all(piece)
            for token, predicted in zip(piece, [running.last_logits, *logits], strict=False):
                if predicted is None:
                    running.prompt_logprobs.append(TokenLogprob(token, llama.piece(token), None))
                else:
                    running.prompt_logprobs.append(token_logprob(llama, predicted, token, n_top))
            running.last_logits = logits[-1]

    def _answer(self, answering: list[RunningRequest]) -> None:
        """Read the last token of each answer, and draw the next one. Only an answer that runs alone drafts."""
        for running in answering:
            if running.sequence is not None and running.sequence.drafter is not None:
                running.sequence.drafter.is_paused = len(self._running) > 1
        most = self.sequences.most_together
        for start in range(0, len(answering), most):
            group = answering[start : start + most]
            sequences = [running.sequence for running in group if running.sequence is not None]
            tokens = [running.next_token for running in group if running.next_token is not None]
            try:
                self.sequences.step(sequences, tokens)
            except Exception as problem:
                if isinstance(problem, OctavoError) and len(group) > 1:  # one has no room: the others continue
                    for running in group:
                        self._answer([running])
                else:
                    for running in group:
                        self._leave(running, problem)
                continue
            for number, running in enumerate(group):
                try:
                    running.draw(self.llama, number)
                except Exception as problem:
                    self._leave(running, problem)
                else:
                    self._end_if_ended(running)

    def _end_if_ended(self, running: RunningRequest) -> None:
        if not running.ended:
            return
        try:
            end = running.end([] if running.marks is None else running.marks.sources(_MOST_SOURCES))
        except Exception as problem:
            self._leave(running, problem)
            return
        self._running.remove(running)
        self._put_back(running)
        running.close()
        self.totals.add(end.usage)
        running.tell(end)
