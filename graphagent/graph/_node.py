"""The parts of a strategy: nodes, taps, outlets, and the paths that `>>` makes of them.

A path is a chain of links, each of which knows the one before it: `>>` adds one link and copies nothing. The file is
long because it has many small classes, which carry the types: type checkers infer the input and output of `Strategy` from them, and report an edge
between nodes whose types do not fit.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Never, Self, TypeVar, cast, final, overload

from graphagent._annotations import check_type, is_type
from graphagent._article import a
from graphagent._options import check_text
from graphagent._policies import CachePolicy, Retry, check_errors
from graphagent.graph import _types
from graphagent.graph._declarations import Declaration
from graphagent.graph._policies import Policy, Timeout
from graphagent.graph._signatures import before_path, function_label, misplaced, needed, past_end, plain_arguments

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
    """One element of a path, and the link before it."""

    __slots__ = ("element", "previous")

    def __init__(self, previous: PathLink | None, element: Placed) -> None:
        self.previous = previous
        self.element = element


class Chain:
    """The class of every argument of Strategy when the program runs."""

    __slots__ = ("_link",)
    _link: PathLink
    if not TYPE_CHECKING:
        __rshift__, __rrshift__ = past_end, before_path

    def elements(self) -> list[Placed]:
        """Return the nodes, taps and outlets of the path, from its head to its end."""
        found: list[Placed] = []
        link: PathLink | None = self._link
        while link is not None:
            found.append(link.element)
            link = link.previous
        found.reverse()
        return found


class PathPart(Chain, Generic[O]):
    """An argument of Strategy after the first. O is the type that it passes to END; Never if it does not lead to END."""

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
    """The end of a strategy; the value that arrives here is the output."""

    __slots__ = ()
    name: ClassVar[str] = "END"
    if not TYPE_CHECKING:
        __rshift__, __rrshift__ = past_end, before_path

    def __repr__(self) -> str:
        return "END"


class _Tapping:
    """The common part of Tap and TapOf, which differ only for type checkers."""

    __slots__ = ("asks_model", "context", "declaration", "function", "input_type", "name", "needs", "policies")

    def __init__(
        self,
        function: Callable[..., Awaitable[None]],
        *,
        name: str,
        input_type: Any = object,
        needs: tuple[type[Any], ...] = (),
        asks_model: bool = False,
        context: Any = None,
    ) -> None:
        self.function = function
        """The function that is executed: `async (ctx, input) -> None`. If it is an object with a true attribute `learns`, the run
        continues where its model or memory fails."""
        self.name = _checked_name(name)
        """The name in this strategy, in events and in pictures."""
        self.declaration = Declaration(function, name)
        """The declaration, shared with all copies, by which rules and logs know it."""
        check_type(f"the input type of {name!r}", input_type)
        self.input_type = input_type
        """The type that the input must have."""
        self.needs = needs
        """The features that must be installed."""
        self.asks_model = asks_model
        """Whether a model is asked. If so, a run without a model is refused."""
        self.context = context
        """The type of the context, such as `Context[Db]`: a run must be passed `deps=` of that type."""
        self.policies: tuple[Policy, ...] = ()
        """Retries and timeouts around its execution, the innermost first."""

    def named(self, name: str) -> Self:
        """Return the same tap under another name, to use it twice in one strategy."""
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
        """Return a tap that is executed again if it raises; each attempt counts towards the budget.

        Args:
            attempts: The largest number of executions, including the first.
            wait: Seconds before the second attempt; an error's `retry_after` is used instead if it is longer.
            factor: The factor by which each further wait is longer.
            max_wait: The longest wait, in seconds. An error with a longer `retry_after` is not tried again, and gets a note that says so.
            errors: The classes of errors that cause another execution.
        """
        chosen = errors if isinstance(errors, tuple) else (errors,)
        return self._with(Retry(attempts, wait, factor, max_wait, chosen))

    def timeout(self, seconds: float) -> Self:
        """Return a tap that is cancelled, and raises NodeTimeoutError, after this many seconds."""
        return self._with(Timeout(seconds))

    def __repr__(self) -> str:
        return f"<tap {self.name!r}>"

    if not TYPE_CHECKING:
        __rrshift__ = before_path

        def cached(self, *args: object, **options: object) -> Never:
            raise TypeError(
                f"the tap {self.name!r} has no output to keep; .cached(…) is for nodes that compute an output"
            )

        def __rshift__(self, other: object) -> Never:
            raise TypeError(f"a path cannot begin at the tap {self.name!r}; begin it at START, a node or an outlet")

        def map(self, *args: object) -> Never:
            raise TypeError(
                f"only .on_error(…) leaves the tap {self.name!r}: it passes its input on to one place. Write .map(…), .on(…) and "
                f".when(…) before it, or after another node, such as passthrough(str)"
            )

        on = when = otherwise = map


@final
class Tap(_Tapping):
    """Executes a function, and passes on any input unchanged."""

    __slots__ = ()

    def on_error(self, kind: type[Exception]) -> Outlet[Any, Any]:
        """Begin the edge that is taken if the tap raises such an error. It passes on the input of the tap, like the other edges."""
        return _error_outlet(self, kind)


@final
class TapOf(_Tapping, Generic[T]):
    """A tap whose input must be of type T."""

    __slots__ = ()
    if TYPE_CHECKING:
        _takes: Callable[[T], None]

    def on_error(self: TapOf[A], kind: type[Exception]) -> Outlet[A, A]:
        """Begin the edge that is taken if the tap raises such an error. It passes on the input of the tap, like the other edges."""
        return _error_outlet(self, kind)


class Edges(First[I, O], Generic[I, O]):
    """A whole path, `START >> … >> END`."""

    __slots__ = ()

    def __init__(self, link: PathLink) -> None:
        self._link = link


class Tail(PathPart[O], Generic[O]):
    """The end of a strategy, `node >> … >> END`."""

    __slots__ = ()

    def __init__(self, link: PathLink) -> None:
        self._link = link


class Path(PathPart[Never], Generic[I, O]):
    """A path that has not reached END, `node >> …`, whose last node returns O."""

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
    """A path from START that has not reached END, `START >> …`, whose last node returns O."""

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

    __slots__ = (
        "change",
        "context",
        "error",
        "kinds",
        "label",
        "part",
        "takes_context",
        "test",
        "value",
        "verb",
        "what",
    )

    def __init__(
        self,
        verb: str,
        what: str = "",
        *,
        test: Callable[..., bool] | None = None,
        takes_context: bool = False,
        change: Callable[[Any], Any] | None = None,
        kinds: tuple[Any, ...] = (),
        part: bool = False,
        value: Any = None,
        error: type[Exception] | None = None,
        context: Any = None,
    ) -> None:
        self.verb = verb
        """`on`, `when`, `map`, `otherwise` or `on error`."""
        self.what = what
        """The types, the value or the function that the verb is about, by name."""
        self.label = f"{verb} {what}" if what else verb
        """Its text in pictures and errors, such as `on ToolCalls`."""
        self.test = test
        """`(value) -> bool`; None if every value passes."""
        self.takes_context = takes_context
        """Whether the test takes the context first: `(ctx, value) -> bool`."""
        self.change = change
        self.kinds = kinds
        """The types that pass, as the check of a strategy compares them."""
        self.part = part
        """Whether only some values of these types pass."""
        self.value = value
        """The type that `change` returns, as the check of a strategy compares it."""
        self.error = error
        """The class of errors for which the edge is taken, if it is an edge for errors."""
        self.context = context
        """The type of the context that the test takes, such as `Context[Db]`."""


class Outlet(Path[I, O]):
    """The beginning of an edge of a node, with its conditions and changes; the head of a path."""

    __slots__ = ("node", "rules")

    def __init__(self, node: Node[Any, Any] | _Tapping, rules: tuple[Rule, ...]) -> None:
        super().__init__(PathLink(None, self))
        self.node = node
        """The node or tap that the edge leaves."""
        self.rules = rules
        """The conditions and changes of the outlet, applied from left to right."""

    def _add(self, rule: Rule) -> Outlet[Any, Any]:
        return Outlet[Any, Any](self.node, (*self.rules, rule))

    @overload
    def when(self, test: Callable[[O], bool]) -> Outlet[I, O]: ...
    @overload
    def when(self, test: Callable[[Context[Any], O], bool]) -> Outlet[I, O]: ...
    def when(self, test: Any) -> Any:
        """Add a condition: a test of `(output)` or `(ctx, output)`, which must not have effects."""
        count = plain_arguments(test)
        if count not in (1, 2):
            raise TypeError(
                f".when() of node {self.node.name!r} takes a plain, not async, function of (output) or of (ctx, output)"
            )

        if count == 1:
            return self._add(Rule("when", function_label(test), test=test))
        context = _types.type_hints(test).get((needed(test) or [""])[0])
        return self._add(Rule("when", function_label(test), test=test, takes_context=True, context=context))

    def map(self, change: Callable[[O], A]) -> Outlet[I, A]:
        """Pass on the result of `change` for the output. The function must not have effects."""
        if plain_arguments(change) not in (0, 1):
            raise TypeError(f".map() of node {self.node.name!r} takes a plain, not async, function of (output)")
        if isinstance(change, type):
            return self._add(Rule("map", function_label(change), change=change, value=change))
        found = _types.type_hints(change)
        _types.check_known(change, found, f".map {function_label(change)}".rstrip(), "return")
        given = found.get("return", Any)
        return self._add(Rule("map", function_label(change), change=change, value=given))


def _error_outlet(tap: _Tapping, kind: type[Exception]) -> Outlet[Any, Any]:
    check_errors(f".on_error() of tap {tap.name!r}", kind)
    return Outlet[Any, Any](tap, (Rule("on error", kind.__name__, error=kind),))


class Node(Outlet[I, O]):
    """A named, typed step: an async function `(ctx, input) -> output`. `@node` makes one from a function.

    A node is a value. It holds no state of a run, so any number of strategies and runs may share it.
    """

    __slots__ = (
        "asks_model",
        "context",
        "declaration",
        "function",
        "input_type",
        "name",
        "needs",
        "output_type",
        "policies",
        "tool_outputs",
    )

    def __init__(
        self,
        function: Callable[[Context[Any], I], Awaitable[O]],
        *,
        name: str,
        input_type: Any = Any,
        output_type: Any = Any,
        needs: tuple[type[Any], ...] = (),
        tool_outputs: Any = Never,
        asks_model: bool = False,
        context: Any = None,
    ) -> None:
        self.function = function
        """The function that is executed. If it is an object, its attribute `asks` is the type of the answers it waits for, and
        its method `check_tools(node, tools)` checks the tools that it is offered before the first node of a run is executed."""
        self.name = _checked_name(name)
        """The name in this strategy, in events and in pictures."""
        self.declaration = Declaration(function, name)
        """The declaration, shared with all copies, by which rules and logs know it."""
        check_type(f"the input type of {name!r}", input_type)
        self.input_type = input_type
        """The type of its input."""
        check_type(f"the output type of {name!r}", output_type)
        self.output_type = output_type
        """The type of its output."""
        self.needs = needs
        """The features that must be installed."""
        self.tool_outputs = tool_outputs
        """The part of the output type that is returned only if tools are offered. Only then must an edge take it."""
        self.asks_model = asks_model
        """Whether a model is asked. If so, a run without a model is refused."""
        self.context = context
        """The type of the context, such as `Context[Db]`: a run must be passed `deps=` of that type."""
        self.policies: tuple[Policy, ...] = ()
        """Retries, timeouts and the cache around its execution, the innermost first."""
        super().__init__(self, ())

    @property
    def asker(self) -> str:
        """The path of the inner node that asks a person, such as `ask_human`; empty if there is none."""
        return self.name if hasattr(self.function, "asks") else ""

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
        """Begin the edge for outputs of one or two types, or for one value: True, None, an enum member, a literal."""
        if not kinds:
            raise TypeError(
                f".on() of node {self.name!r} takes a type or a value; for all other outputs use .otherwise()"
            )
        if len(kinds) == 1 and not is_type(kinds[0]):
            wanted = kinds[0]

            def is_wanted(value: Any) -> bool:
                return type(value) is type(wanted) and bool(value == wanted)

            return self._add(
                Rule(
                    "on",
                    _types.one_value(wanted),
                    test=is_wanted,
                    kinds=(_types.literal(wanted),),
                    part=wanted is not None and _types.literal(wanted) is type(wanted),
                )
            )
        fitting = _types.tester(kinds, self.output_type)
        shown = " | ".join(_types.show(kind) for kind in kinds)
        return self._add(Rule("on", shown, test=fitting, kinds=kinds))

    def otherwise(self) -> Outlet[I, O]:
        """Begin the edge for every output that no edge before it takes."""
        return self._add(Rule("otherwise"))

    def on_error(self, kind: type[E]) -> Outlet[I, E]:
        """Begin the edge that is taken if the node raises such an error, which is passed on."""
        check_errors(f".on_error() of node {self.name!r}", kind)
        return self._add(Rule("on error", kind.__name__, error=kind, value=kind))

    def named(self, name: str) -> Self:
        """Return the same node under another name, to use it twice in one strategy."""
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
        """Return a node that is executed again if it raises; each attempt counts towards the budget.

        Args:
            attempts: The largest number of executions, including the first.
            wait: Seconds before the second attempt; an error's `retry_after` is used instead if it is longer.
            factor: The factor by which each further wait is longer.
            max_wait: The longest wait, in seconds. An error with a longer `retry_after` is not tried again, and gets a note that says so.
            errors: The classes of errors that cause another execution.
        """
        chosen = errors if isinstance(errors, tuple) else (errors,)
        return self._with(Retry(attempts, wait, factor, max_wait, chosen))

    def timeout(self, seconds: float) -> Self:
        """Return a node that is cancelled, and raises NodeTimeoutError, after this many seconds.

        Raises:
            TypeError: the node asks a person, and no process waits for the answer.
        """
        if self.asker:
            raise TypeError(
                f"{self.asker!r} asks a person. No process runs meanwhile, so .timeout({seconds!r}) would not end the wait; give the question a "
                f"deadline=, and the nodes around it the .timeout"
            )
        return self._with(Timeout(seconds))

    def cached(self, ttl: float | None = None, *, key: str = "", version: str | int = "") -> Self:
        """Return a node whose output is kept in the store of the run, and used by later executions with the same input.

        Values are found by runs of the same owner, in any process. The input and the declared types count; the code of the
        function, the transcript, `deps` and features do not, so the node should compute its output from its input. Errors are
        not kept. An agent with such a node needs a store.

        Args:
            ttl: Seconds for which an output is kept; by default as long as the store.
            key: The name under which outputs are kept; by default they are used only by this node of its strategy.
            version: Outputs that were kept under another version are not used. Change the version when the function computes
                something else.

        Raises:
            TypeError: the node is a strategy or a fork, asks a model, needs a feature, or is cached already; or as CachePolicy.
            ValueError: `ttl` is not above 0.
        """
        refusal = ""
        if type(self) is not Node:
            refusal = (
                f"is {a(type(self).__name__.lower().removesuffix('node'))}; write .cached(…) on the nodes inside it"
            )
        elif self.asks_model:
            refusal = "asks a model, whose answer depends on the transcript; keep the answers of the model: CachedModel(model, store)"
        elif self.needs:
            refusal = (
                f"needs {self.needs[0].__name__}, so its output depends on more than its input; it cannot be cached"
            )
        elif any(isinstance(policy, CachePolicy) for policy in self.policies):
            refusal = "is cached already; write .cached(…) once"
        if refusal:
            raise TypeError(f"{self.name!r} {refusal}")
        return self._with(CachePolicy(ttl, key, version))

    def __repr__(self) -> str:
        return f"<node {self.name!r}: {_types.show(self.input_type)} -> {_types.show(self.output_type)}>"


@final
class Start:
    """The beginning of a strategy; the task of a run leaves it."""

    __slots__ = ("_taps",)
    name: ClassVar[str] = "START"
    if not TYPE_CHECKING:
        __rrshift__ = before_path

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
"""An element of a path. A node is an outlet; any other outlet can only be the head of a path."""


def _next(link: PathLink, other: Any) -> Placed:
    if isinstance(other, Node | _Tapping | End):
        return cast("Placed", other)
    if isinstance(other, Outlet):
        outlet = f"{other.node.name!r}, {', '.join(rule.label for rule in other.rules)}"
        name = other.node.name
        raise TypeError(
            f"the outlet ({outlet}) belongs at the head of a path; end this one with {name}, and give Strategy one more that begins "
            f"with the outlet"
        )
    before = link.element.node if isinstance(link.element, Outlet) else link.element
    named = getattr(before, "name", type(before).__name__)
    if isinstance(other, Start):
        found = "START, which only begins a path"
    elif isinstance(other, Chain):
        found = "another path; write its nodes without parentheses, or give Strategy both paths"
    else:
        found = misplaced(other)
    raise TypeError(f"after {named!r} comes a node, a tap, a strategy or END, not {found}")


def _checked_name(name: str) -> str:
    check_text("the name of a node", name)
    if not name or "/" in name or not name.isprintable():
        raise ValueError(
            f"a node cannot be named {name!r}: a name has at least one character, no '/' and no control characters"
        )
    return name
