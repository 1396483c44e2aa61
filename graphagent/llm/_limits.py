"""A wrapper that keeps to the concurrency and the rate that a server allows."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from anyio import sleep

from graphagent._clock import now
from graphagent._concurrency import Reply
from graphagent._policies import before_another, pausing
from graphagent.errors import ModelError
from graphagent.llm._attempts import failures
from graphagent.llm._wrappers import check_model, tells_cost

if TYPE_CHECKING:
    from graphagent._details import FailedRequest
    from graphagent.llm._messages import ModelRequest, ModelResponse
    from graphagent.protocols import Model

_MINUTE = 60_000


class LimitedModel:
    """A model with limits, which all runs that share the object keep together: `LimitedModel(model, concurrency=8, per_minute=500)`.

    Requests that have to wait are served in the order in which they came, in any number of tasks, threads and event loops. One that
    is cancelled leaves the queue. A minute is any 60 seconds, not one of the clock on the wall. Where the model is asked several
    times for one answer, each request counts, and no request keeps its place while it waits for the next one.
    """

    def __init__(
        self,
        model: Model,
        *,
        concurrency: int | None = None,
        per_minute: int | None = None,
        tokens_per_minute: int | None = None,
    ) -> None:
        """Wrap a model.

        Args:
            model: The model that is asked.
            concurrency: How many requests may be pending at once.
            per_minute: How many requests may begin within a minute, failed ones included.
            tokens_per_minute: With how many tokens, of prompts and answers, a further request waits. They are known when an answer
                comes, so pending requests may exceed the limit then.

        Raises:
            TypeError: `model` is not a model, or no limit is given.
            ValueError: a limit is not a number of 1 or more.
        """
        example = "LimitedModel(model, concurrency=8)"
        check_model("a LimitedModel", model, example)
        limits = {"concurrency": concurrency, "per_minute": per_minute, "tokens_per_minute": tokens_per_minute}
        self.limits = {name: limit for name, limit in limits.items() if limit is not None}
        """The limits, by the names of their arguments."""
        if not self.limits:
            raise TypeError(f"a LimitedModel takes concurrency=, per_minute= or tokens_per_minute=; write {example}")
        for name, limit in self.limits.items():
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{name}={limit!r} is invalid; pass an integer of at least 1")
        self.model = model
        """The model that is asked."""
        self._places = None if concurrency is None else _Places(concurrency)
        self._pace = None if len(self.limits) == (concurrency is not None) else _Pace(per_minute, tokens_per_minute)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.name

    @property
    def tells_cost(self) -> bool:
        """Whether the answers of the model say what they cost."""
        return tells_cost(self.model)

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model as soon as the limits allow it.

        Raises:
            ModelRequestError: as the model raises it.
        """
        admission = _Admission(self._places, self._pace)
        token = None
        try:
            await admission.enter()
            token = pausing.set(admission.pause)
            response = await self.model.respond(request, on_text)
        except ModelError as error:
            admission.count(failures(self.model, error))
            raise
        finally:
            if token is not None:
                pausing.reset(token)
            admission.leave()
        admission.count((response, *response.failed))
        return response

    def __repr__(self) -> str:
        return f"<{self.model!r} with {', '.join(f'{name}={limit}' for name, limit in self.limits.items())}>"


class _Admission:
    """The share of the limits that an answer uses: a place while its request is pending, and a part of the minute."""

    def __init__(self, places: _Places | None, pace: _Pace | None) -> None:
        self._places, self._pace = places, pace
        self._around = pausing.get()
        self._has_place = False

    async def enter(self) -> None:
        """Wait until a request may begin."""
        if self._places is not None:
            await self._places.enter()
            self._has_place = True
        if self._pace is not None:
            await self._pace.wait()

    def leave(self) -> None:
        """Give the place back, if it has one."""
        if self._places is not None and self._has_place:
            self._has_place = False
            self._places.leave()

    async def pause(self, seconds: float) -> None:
        """Wait before another request for the same answer, without a place."""
        self.leave()
        token = pausing.set(self._around)
        try:
            await before_another(seconds)
        finally:
            pausing.reset(token)
        await self.enter()

    def count(self, requests: Iterable[ModelResponse | FailedRequest]) -> None:
        """Count the tokens of requests that were answered, or failed."""
        if self._pace is not None:
            self._pace.count(_tokens(requests))


def _tokens(requests: Iterable[ModelResponse | FailedRequest]) -> int:
    return sum(each.usage.total_tokens for each in requests if each.usage is not None)


class _Places:
    """A number of places, each for one task at a time, assigned in the order of arrival."""

    def __init__(self, count: int) -> None:
        self._count = self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[Reply] = deque()
        self._pid = os.getpid()

    async def enter(self) -> None:
        if self._pid != os.getpid():  # a forked process has none of its parent's tasks
            self._lock, self._waiting, self._free, self._pid = threading.Lock(), deque(), self._count, os.getpid()
        with self._lock:
            if self._free:  # then nobody waits
                self._free -= 1
                return
            reply = Reply()
            self._waiting.append(reply)
        try:
            await reply.wait()
        except BaseException:
            with self._lock:
                is_queued = reply in self._waiting
                if is_queued:
                    self._waiting.remove(reply)
            if not is_queued:  # it got a place and was cancelled before it could use it
                self.leave()
            raise

    def leave(self) -> None:
        with self._lock:
            while self._waiting:
                if self._waiting.popleft().send():
                    return
            self._free += 1


class _Pace:
    """The start times of the requests of the last minute, and the tokens of their answers."""

    def __init__(self, requests: int | None, tokens: int | None) -> None:
        self._requests, self._tokens = requests, tokens
        self._turn = _Places(1)
        self._lock = threading.Lock()
        self._begun: deque[int] = deque()
        self._taken: deque[tuple[int, int]] = deque()
        self._total = 0
        """The sum of the tokens in `_taken`."""
        self._last = 0

    async def wait(self) -> None:
        """Wait until a further request may begin, and count it. One task at a time looks at the clock; the others queue for that."""
        await self._turn.enter()
        try:
            while (seconds := self._begin()) > 0:  # noqa: ASYNC110  it sleeps until the moment, and then that may have moved
                await sleep(seconds)
        finally:
            self._turn.leave()

    def count(self, tokens: int) -> None:
        """Count the tokens of an answer."""
        if self._tokens is not None and tokens:
            with self._lock:
                self._taken.append((self._time(), tokens))
                self._total += tokens

    def _begin(self) -> float:
        """Count a request that begins now, and return 0; or return how many seconds to wait."""
        with self._lock:
            time = self._time()
            while self._begun and self._begun[0] <= time - _MINUTE:
                self._begun.popleft()
            while self._taken and self._taken[0][0] <= time - _MINUTE:
                self._total -= self._taken.popleft()[1]
            until = time
            if self._requests is not None and len(self._begun) >= self._requests:
                until = self._begun[0] + _MINUTE
            if self._tokens is not None:
                total = self._total
                for at, tokens in self._taken:
                    if total < self._tokens:
                        break
                    total -= tokens
                    until = max(until, at + _MINUTE)
            if until == time and self._requests is not None:
                self._begun.append(time)
            return (until - time) / 1_000

    def _time(self) -> int:
        """Return the time. If the clock was set back, the counts move back with it, or all requests would wait until it catches up."""
        time = now()
        if time < self._last:
            back = self._last - time
            self._begun = deque(each - back for each in self._begun)
            self._taken = deque((at - back, tokens) for at, tokens in self._taken)
        self._last = time
        return time
