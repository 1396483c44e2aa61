"""Calling async objects from code that is not async, such as scripts and notebooks."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
)
from types import GenericAlias, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from graphagent import blocking_types as types
    from graphagent._agent import Agent
    from graphagent.llm import Tool
    from graphagent.memory import KeepingProvider, Notes, NoteView
    from graphagent.run import Run, RunStream
    from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
    from graphagent.work import RunHandle

I = TypeVar("I")
O = TypeVar("O")
P = ParamSpec("P")
T = TypeVar("T")


@overload
def blocking(target: Notes) -> types.BlockingNotes: ...
@overload
def blocking(target: NoteView) -> types.BlockingNoteView: ...
@overload
def blocking(target: Agent[I, O]) -> types.BlockingAgent[I, O]: ...
@overload
def blocking(target: Run[O]) -> types.BlockingRun[O]: ...
@overload
def blocking(target: RunStream[O]) -> types.BlockingRunStream[O]: ...
@overload
def blocking(target: RunHandle[O]) -> types.BlockingRunHandle[O]: ...
@overload
def blocking(target: Tool) -> types.BlockingTool: ...
@overload
def blocking(target: SqliteStore) -> types.BlockingSqliteStore: ...
@overload
def blocking(target: MemoryStore) -> types.BlockingMemoryStore: ...
@overload
def blocking(target: EncryptedStore) -> types.BlockingEncryptedStore: ...
@overload
def blocking(target: KeepingProvider) -> types.BlockingKeepingProvider: ...
@overload
def blocking(target: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]: ...
@overload
def blocking(target: object) -> Any: ...
def blocking(target: object) -> Any:
    """Return an object whose async methods can be called without `await`: `blocking(notes).recall("…")`.

    It works for an Agent, a Run, Notes and their views, providers, stores: for any object with async methods. These methods
    return when they are done, async iterators become iterators, and async context managers become context managers. Other
    methods and attributes are unchanged; objects of graphagent that they return are blocking too. An async function becomes a
    plain function.

    For annotations use `BlockingNotes`, `BlockingAgent` and the other types of `graphagent.blocking_types`, which type checkers
    infer; for your own classes they infer Any.

    All blocking objects share one event loop in a thread of its own, so they work in a notebook, whose loop is running already,
    and in any number of threads. An interrupt cancels the pending call. The end of a script does not wait for the thread.

    Raises:
        RuntimeError: a method was called within that event loop, such as in a tool: await it there.
    """
    if inspect.iscoroutinefunction(target):
        return functools.wraps(target)(_calling(target))
    return Blocking(target)


class Blocking:
    """An object whose async methods block; `blocking(x)` makes it."""

    __slots__ = ("__weakref__", "_managers", "_target")

    def __init__(self, target: object) -> None:
        self._target: Any = target
        self._managers: list[contextlib.AbstractContextManager[Any]] = []

    def __class_getitem__(cls, arguments: Any) -> GenericAlias:
        return GenericAlias(cls, arguments)  # annotations such as `BlockingAgent[str, int]` may be evaluated

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return _calling(found) if callable(found) and not isinstance(found, type) else _plain(found)

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def __iter__(self) -> Iterator[Any]:
        target = self._target
        return _iterated(target) if hasattr(target, "__aiter__") else iter(target)

    def __enter__(self) -> Any:
        if not hasattr(self._target, "__aenter__"):
            raise TypeError(f"{type(self._target).__name__} is not a context manager")
        manager = _portal().wrap_async_context_manager(self._target)
        given = manager.__enter__()
        self._managers.append(manager)
        return self if given is self._target else _plain(given)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        return self._managers.pop().__exit__(kind, error, trace)


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls an async function, and waits for its result."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **options: Any) -> Any:
        args = tuple(map(bare, args))
        options = {name: bare(value) for name, value in options.items()}
        if inspect.iscoroutinefunction(function):
            return _plain(_waited(functools.partial(function, *args, **options)))
        given = function(*args, **options)
        if inspect.isawaitable(given):
            return _plain(_waited(functools.partial(_awaited, given)))
        return _plain(given)

    return call


async def _awaited(given: Awaitable[T]) -> T:
    return await given


def bare(value: Any) -> Any:
    """Return an argument as async code can use it: unwrapped, and an iterator of this module as a list."""
    if inspect.isgenerator(value) and value.gi_code is _iterated.__code__:
        return list(value)
    return object.__getattribute__(value, "_target") if isinstance(value, Blocking) else value


def _plain(given: Any) -> Any:
    """Return a result as code that is not async can use it."""
    if isinstance(given, AsyncGenerator):
        return _iterated(cast("AsyncGenerator[Any]", given))
    kind = cast("Any", type(given))
    if isinstance(given, BaseException | type) or kind.__module__.partition(".")[0] != "graphagent":
        return given
    if hasattr(kind, "__anext__") and not hasattr(kind, "__aenter__"):
        return _iterated(given)
    return Blocking(given) if _is_async(kind) else given


@functools.cache
def _is_async(kind: Any) -> bool:
    """Return whether a class has async methods."""
    names = [name for name in dir(kind) if not name.startswith("_") or name in ("__aenter__", "__anext__", "__aiter__")]
    found = (inspect.getattr_static(kind, name) for name in names)
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in found)


def _iterated(source: AsyncIterable[T]) -> Generator[T]:
    """Yield the items of an async iterator, which is closed with this generator."""
    iterator = aiter(source)
    end = object()

    async def following() -> Any:
        return await anext(iterator, end)

    try:
        while (given := _waited(following)) is not end:
            yield _plain(given)
    finally:
        aclose = getattr(iterator, "aclose", None)
        if aclose is not None:
            _waited(aclose)


def _waited(function: Callable[[], Awaitable[T]]) -> T:
    """Call a function in the event loop, and wait for its result; an interrupt cancels it."""
    future = _portal().start_task_soon(function)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class _LoopThread:
    """An event loop in a thread of its own. The end of the process does not wait for it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._ready = threading.Event()
        self.portal: BlockingPortal | None = None
        self.thread = threading.Thread(target=self._run, name="graphagent-blocking", daemon=True)

    def start(self) -> Self:
        self.thread.start()
        self._ready.wait()
        return self

    def _run(self) -> None:
        import anyio

        anyio.run(self._serve)

    async def _serve(self) -> None:
        from anyio.from_thread import BlockingPortal

        async with BlockingPortal() as portal:
            self.portal = portal
            self._ready.set()
            await portal.sleep_until_stopped()


_lock = threading.Lock()
_loop: _LoopThread | None = None


def _portal() -> BlockingPortal:
    global _loop
    with _lock:
        if _loop is None or _loop.pid != os.getpid():  # a forked process has none of its parent's threads
            _loop = _LoopThread().start()
    if threading.current_thread() is _loop.thread:
        raise RuntimeError(
            "this method was called in the event loop that it would wait for; await the async method instead"
        )
    assert _loop.portal is not None
    return _loop.portal
