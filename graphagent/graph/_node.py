"""The parts of a strategy: nodes, taps, outlets, and the paths that `>>` makes of them.

A path is a chain of links, each of which knows the one before: `>>` adds one link and copies nothing. The many small
classes carry the types: `Strategy` infers its input and output from them, and an edge between nodes whose types do not fit
is a static error.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Never, Self, TypeVar, final, overload

from graphagent._retry import Retry, check_errors
from graphagent.graph import _types
from graphagent.graph._policies import Policy, Timeout
from graphagent.graph._signatures import described, needed, plain_arguments

if TYPE_CHECKING:
    from graphagent.run import Context

I = TypeVar("I", contravariant=True)
O = TypeVar("O", covariant=True)
T = TypeVar("T", contravariant=True)
A = TypeVar("A")
B = TypeVar("B")
E = TypeVar("E", bound=Exception)


@final
class PathLink:
    """One place in a path."""

    __slots__ = ("element", "previous")

    def __init__(self, previous: PathLink | None, element: Placed) -> None:
        self.previous = previous
        self.element = element


class Chain:
    """What any argument of Strategy is when the program runs."""

    __slots__ = ("_link",)
    _link: PathLink

    def elements(self) -> list[Placed]:
        """Give the nodes, taps and outlets of the path, from its head on."""
        found: list[Placed] = []
        link: PathLink | None = self._link
        while link is not None:
            found.append(link.element)
            link = link.previous
        found.reverse()
        return found


class PathPart(Chain, Generic[O]):
    """An argument of Strategy after the first. O is what it lets reach END; Never, when nothing does."""

    __slots__ = ()
    if TYPE_CHECKING:
        _ends: Callable[[], O]


class First(Chain, Generic[I, O]):
    """The first argument of Strategy: it begins at START."""

    __slots__ = ()
    if TYPE_CHECKING:
        _begins: Callable[[I], None]
        _ends: Callable[[], O]


@final
class End:
    """The end of a strategy; what arrives here is its output."""

    __slots__ = ()
    name: ClassVar[str] = "END"

    def __repr__(self) -> str:
        return "END"


class _Tapping:
    """What a Tap and a TapOf are when the program runs."""

    __slots__ = ("asks_model", "context", "function", "name", "needs", "policies", "takes")

    def __init__(
        self,
        function: Callable[..., Awaitable[None]],
        *,
        name: str,
        takes: Any = object,
        needs: tuple[type[Any], ...] = (),
        asks_model: bool = False,
        context: Any = None,
    ) -> None:
        self.function = function
        """What is executed: `async (ctx, input) -> None`."""
        self.name = _checked_name(name)
        """How it is called in this strategy, in events and in pictures."""
        self.takes = takes
        """The type that the input must have."""
        self.needs = needs
        """The features that must be installed."""
        self.asks_model = asks_model
        """Whether it asks a model, so that no run begins without one."""
        self.context = context
        """The type of its context, such as `Context[Db]`: a run must be passed `deps=` of that type."""
        self.policies: tuple[Policy, ...] = ()
        """What wraps its execution, the innermost first."""

    def named(self, name: str) -> Self:
        """Give the same tap under another name, for a second place in one strategy."""
        tap = copy.copy(self)
        tap.name = _checked_name(name)
        return tap

    def _with(self, policy: Policy) -> Self:
        wrapped = copy.copy(self)
        wrapped.policies = (*self.policies, policy)
        return wrapped

    def retry(
        self,
        *,
        attempts: int,
        wait: float = 1.0,
        factor: float = 2.0,
        max_wait: float = 60.0,
        errors: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> Self:
        """Return a tap that is executed again when it raises; each attempt counts in the budget.

        Args:
            attempts: How often at the most, the first one counted.
            wait: Seconds before the second attempt; an error's `retry_after` counts where it is longer.
            factor: How much longer each further wait is.
            max_wait: Seconds that no wait exceeds.
            errors: What is tried again.
        """
        chosen = errors if isinstance(errors, tuple) else (errors,)
        return self._with(Retry(attempts, wait, factor, max_wait, chosen))

    def timeout(self, seconds: float) -> Self:
        """Return a tap that is cancelled, and raises TimeoutError, after so many seconds."""
        return self._with(Timeout(seconds))

    def __repr__(self) -> str:
        return f"<tap {self.name!r}>"

    if not TYPE_CHECKING:

        def __rshift__(self, other: object) -> Never:
            raise TypeError(f"a path cannot begin at the tap {self.name!r}; begin it at START, a node or an outlet")


@final
class Tap(_Tapping):
    """Does something and passes any input on unchanged."""

    __slots__ = ()

    def on_error(self, kind: type[Exception]) -> Outlet[Any, Any]:
        """Take this way out when the tap raises such an error; what the tap was given is passed on, as always."""
        return _error_outlet(self, kind)


@final
class TapOf(_Tapping, Generic[T]):
    """A tap that needs an input of type T."""

    __slots__ = ()
    if TYPE_CHECKING:
        _takes: Callable[[T], None]

    def on_error(self: TapOf[A], kind: type[Exception]) -> Outlet[A, A]:
        """Take this way out when the tap raises such an error; what the tap was given is passed on, as always."""
        return _error_outlet(self, kind)


class Edges(First[I, O], Generic[I, O]):
    """START >> … >> END."""

    __slots__ = ()

    def __init__(self, link: PathLink) -> None:
        self._link = link


class Tail(PathPart[O], Generic[O]):
    """node >> … >> END."""

    __slots__ = ()

    def __init__(self, link: PathLink) -> None:
        self._link = link


class Path(PathPart[Never], Generic[I, O]):
    """node >> … with a loose end that yields O."""

    __slots__ = ()
    if TYPE_CHECKING:
        _takes: Callable[[I], None]
        _yields: Callable[[], O]

    def __init__(self, link: PathLink) -> None:
        self._link = link

    @overload
    def __rshift__(self, other: Tap | TapOf[O]) -> Path[I, O]: ...
    @overload
    def __rshift__(self, other: End) -> Tail[O]: ...
    @overload
    def __rshift__(self, other: Node[O, A]) -> Path[I, A]: ...
    def __rshift__(self, other: Any) -> Any:
        link = PathLink(self._link, _next(self._link, other))
        return Tail[Any](link) if other is END else Path[Any, Any](link)


class EntryPath(First[I, Never], Generic[I, O]):
    """START >> … with a loose end that yields O."""

    __slots__ = ()
    if TYPE_CHECKING:
        _yields: Callable[[], O]

    def __init__(self, link: PathLink) -> None:
        self._link = link

    @overload
    def __rshift__(self, other: Tap | TapOf[O]) -> EntryPath[I, O]: ...
    @overload
    def __rshift__(self, other: End) -> Edges[I, O]: ...
    @overload
    def __rshift__(self, other: Node[O, A]) -> EntryPath[I, A]: ...
    def __rshift__(self, other: Any) -> Any:
        link = PathLink(self._link, _next(self._link, other))
        return Edges[Any, Any](link) if other is END else EntryPath[Any, Any](link)


@final
class Rule:
    """One condition or change of an outlet: `test` lets a value pass, `change` replaces it."""

    __slots__ = ("change", "context", "error", "kinds", "label", "part", "test", "value")

    def __init__(
        self,
        label: str,
        *,
        test: Callable[[Any, Any], bool] | None = None,
        change: Callable[[Any], Any] | None = None,
        kinds: tuple[Any, ...] = (),
        part: bool = False,
        value: Any = None,
        error: type[Exception] | None = None,
        context: Any = None,
    ) -> None:
        self.label = label
        """As it is drawn, such as `on ToolCalls`."""
        self.test = test
        """`(ctx, value) -> bool`; None lets everything pass."""
        self.change = change
        self.kinds = kinds
        """The types that pass, for the check."""
        self.part = part
        """Whether only some values of these types pass."""
        self.value = value
        """The type that the change gives, for the check."""
        self.error = error
        """The error that is taken, for a way out that is taken when the node raises."""
        self.context = context
        """The type of the context that the test takes, such as `Context[Db]`."""


class Outlet(Path[I, O]):
    """One way out of a node; it stands at the head of a path."""

    __slots__ = ("node", "rules")

    def __init__(self, node: Node[Any, Any] | _Tapping, rules: tuple[Rule, ...]) -> None:
        super().__init__(PathLink(None, self))
        self.node = node
        """The node, or the tap, whose way out it is."""
        self.rules = rules
        """Its conditions and changes, tried and made from left to right."""

    def _add(self, rule: Rule) -> Outlet[Any, Any]:
        return Outlet[Any, Any](self.node, (*self.rules, rule))

    @overload
    def when(self, test: Callable[[O], bool]) -> Outlet[I, O]: ...
    @overload
    def when(self, test: Callable[[Context[Any], O], bool]) -> Outlet[I, O]: ...
    def when(self, test: Any) -> Any:
        """Take this way out when the test of `(output)` or `(ctx, output)` says so. It must not have effects."""
        count = plain_arguments(test)
        if count not in (1, 2):
            raise TypeError(
                f".when() of node {self.node.name!r} takes a plain, not async, function of (output) or of (ctx, output)"
            )

        if count == 1:
            return self._add(Rule(described("when", test), test=lambda _, value: test(value)))
        context = _types.hints(test, 1).get((needed(test) or [""])[0])
        return self._add(Rule(described("when", test), test=test, context=context))

    def map(self, change: Callable[[O], A]) -> Outlet[I, A]:
        """Hand on what `change` makes of the output. It must not have effects."""
        if plain_arguments(change) not in (0, 1):
            raise TypeError(f".map() of node {self.node.name!r} takes a plain, not async, function of (output)")
        if isinstance(change, type):
            return self._add(Rule(described("map", change), change=change, value=change))
        found = _types.hints(change, 1)
        _types.check_known(change, found, f".{described('map', change)}", "return")
        given = found.get("return", Any)
        return self._add(Rule(described("map", change), change=change, value=given))


def _error_outlet(tap: _Tapping, kind: type[Exception]) -> Outlet[Any, Any]:
    check_errors(f".on_error() of tap {tap.name!r}", kind)
    return Outlet[Any, Any](tap, (Rule(f"on error {kind.__name__}", error=kind),))


class Node(Outlet[I, O]):
    """A named, typed step: an async function `(ctx, input) -> output`. `@node` makes one of a function.

    A node is a value. It holds nothing of a run, so any number of strategies and runs may share it.
    """

    __slots__ = (
        "asks_model",
        "context",
        "function",
        "gives",
        "name",
        "needs",
        "policies",
        "takes",
        "tool_outputs",
    )

    def __init__(
        self,
        function: Callable[[Context[Any], I], Awaitable[O]],
        *,
        name: str,
        takes: Any = Any,
        gives: Any = Any,
        needs: tuple[type[Any], ...] = (),
        tool_outputs: Any = Never,
        asks_model: bool = False,
        context: Any = None,
    ) -> None:
        self.function = function
        """What is executed."""
        self.name = _checked_name(name)
        """How it is called in this strategy, in events and in pictures."""
        self.takes = takes
        """The type of its input."""
        self.gives = gives
        """The type of its output."""
        self.needs = needs
        """The features that must be installed."""
        self.tool_outputs = tool_outputs
        """The part of its output that there is only where tools are offered: a way for it is asked for only there."""
        self.asks_model = asks_model
        """Whether it asks a model, so that no run begins without one."""
        self.context = context
        """The type of its context, such as `Context[Db]`: a run must be passed `deps=` of that type."""
        self.policies: tuple[Policy, ...] = ()
        """What wraps its execution, the innermost first."""
        super().__init__(self, ())

    def _copy(self) -> Self:
        own = copy.copy(self)
        super(Node, own).__init__(own, ())
        return own

    def _with(self, policy: Policy) -> Self:
        wrapped = self._copy()
        wrapped.policies = (*self.policies, policy)
        return wrapped

    @overload
    def on(self, kind: type[A], /) -> Outlet[I, A]: ...
    @overload
    def on(self, kind: type[A], other: type[B], /) -> Outlet[I, A | B]: ...
    @overload
    def on(self, value: A, /) -> Outlet[I, A]: ...
    def on(self, *kinds: Any) -> Any:
        """Take this way out for outputs of one or two types, or for one value: True, None, an enum member, a literal."""
        if not kinds:
            raise TypeError(f".on() of node {self.name!r} takes a type or a value; for the rest there is .otherwise()")
        if len(kinds) == 1 and not _types.is_type(kinds[0]):
            wanted = kinds[0]
            return self._add(
                Rule(
                    f"on {_types.one_value(wanted)}",
                    test=lambda _, value: type(value) is type(wanted) and value == wanted,
                    kinds=(_types.literal(wanted),),
                    part=wanted is not None and _types.literal(wanted) is type(wanted),
                )
            )
        fitting = _types.tester(kinds, self.gives)
        label = " | ".join(_types.show(kind) for kind in kinds)
        return self._add(Rule(f"on {label}", test=lambda _, value: fitting(value), kinds=kinds))

    def otherwise(self) -> Outlet[I, O]:
        """Take this way out for every output that no way out before it takes."""
        return self._add(Rule("otherwise"))

    def on_error(self, kind: type[E]) -> Outlet[I, E]:
        """Take this way out when the node raises such an error; the error is handed on."""
        check_errors(f".on_error() of node {self.name!r}", kind)
        return self._add(Rule(f"on error {kind.__name__}", error=kind, value=kind))

    def named(self, name: str) -> Self:
        """Give the same node under another name, for a second place in one strategy."""
        node = self._copy()
        node.name = _checked_name(name)
        return node

    def retry(
        self,
        *,
        attempts: int,
        wait: float = 1.0,
        factor: float = 2.0,
        max_wait: float = 60.0,
        errors: type[Exception] | tuple[type[Exception], ...] = Exception,
    ) -> Self:
        """Give a node that is executed again when it raises; each attempt counts in the budget.

        Args:
            attempts: How often at the most, the first one counted.
            wait: Seconds before the second attempt; an error's `retry_after` counts where it is longer.
            factor: How much longer each further wait is.
            max_wait: Seconds that no wait exceeds.
            errors: What is tried again.
        """
        chosen = errors if isinstance(errors, tuple) else (errors,)
        return self._with(Retry(attempts, wait, factor, max_wait, chosen))

    def timeout(self, seconds: float) -> Self:
        """Give a node that is cancelled, and raises TimeoutError, after so many seconds."""
        return self._with(Timeout(seconds))

    def __repr__(self) -> str:
        return f"<node {self.name!r}: {_types.show(self.takes)} -> {_types.show(self.gives)}>"


@final
class Start:
    """The beginning of a strategy; what a run is given leaves it."""

    __slots__ = ("_taps",)
    name: ClassVar[str] = "START"

    def __init__(self, taps: PathLink | None = None) -> None:
        self._taps = taps

    @overload
    def __rshift__(self, other: Tap) -> Start: ...
    @overload
    def __rshift__(self, other: TapOf[A]) -> EntryPath[A, A]: ...
    @overload
    def __rshift__(self, other: Node[A, B]) -> EntryPath[A, B]: ...
    @overload
    def __rshift__(self, other: End) -> Edges[Any, Any]: ...
    def __rshift__(self, other: Any) -> Any:
        before = self._taps or PathLink(None, START)
        link = PathLink(before, _next(before, other))
        if isinstance(other, Tap):
            return Start(link)
        return Edges[Any, Any](link) if other is END else EntryPath[Any, Any](link)

    def __repr__(self) -> str:
        return "START"


START: Final = Start()
END: Final = End()
Placed = Outlet[Any, Any] | _Tapping | Start | End
"""What stands in a path; a node is an outlet, and a bare outlet stands only at the head."""


def _next(link: PathLink, other: Placed) -> Placed:
    if isinstance(other, Node | _Tapping | End):
        return other
    if isinstance(other, Outlet):
        way = f"{other.node.name!r}, {', '.join(rule.label for rule in other.rules)}"
        name = other.node.name
        raise TypeError(
            f"the way out ({way}) stands at the head of a path; end this one with {name}, and give Strategy one more that begins "
            f"with the way out"
        )
    before = link.element.node if isinstance(link.element, Outlet) else link.element
    named = getattr(before, "name", type(before).__name__)
    raise TypeError(f"behind {named!r} comes a node, a tap, a strategy or END; got {type(other).__name__}. See @node")


def _checked_name(name: str) -> str:
    if not name or "/" in name or not name.isprintable():
        raise ValueError(
            f"a node cannot be named {name!r}: a name has at least one character, no '/' and no control characters"
        )
    return name
