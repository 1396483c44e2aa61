"""Checks of the options that users pass: names, words, numbers, models. A mistake raises at the call that makes it."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from os import PathLike
from typing import Any, cast

from graphagent._article import kind_of

Word = str | bool | None


def check_options(owner: str, options: Iterable[str], known: Collection[str], *more: str, other: str = "") -> None:
    """Check that all options are known.

    Args:
        owner: What takes the options.
        options: The names that were passed.
        known: The names that it takes.
        more: Other arguments of the same call, which the user may have meant.
        other: Another hint, as text in which `{name!r}` stands for the option.

    Raises:
        TypeError: an option is unknown; the error names the nearest known option.
    """
    for name in options:
        if name not in known:
            every = (*known, *more)
            nearest = _nearest(name, every)
            meant = " or ".join(filter(None, (nearest and f"{nearest}=", other.format(name=name))))
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(every)}"
            raise TypeError(f"{owner} has no option {name!r}; {hint}")


def check_names(
    owner: str, given: Mapping[str, object], instead: Mapping[str, str], known: Collection[str], *more: str
) -> None:
    """Refuse unknown arguments, of which some are known from other libraries.

    Args:
        owner: What takes the arguments.
        given: The unknown arguments, if any.
        instead: The line to write for some of them, by their names; `{value}` stands for the value that was passed, if it is a
            number or a flag.
        known: The names that it takes.
        more: Other arguments of the same call, which the user may have meant.

    Raises:
        TypeError: there is an unknown argument.
    """
    for name, value in given.items():
        if name in instead:
            shown = repr(value) if isinstance(value, int | float) else "…"
            raise TypeError(f"{owner} has no option {name!r}; write {instead[name].format(value=shown)}")
    check_options(owner, given, known, *more)


def check_settings(
    feature: str, make: Callable[..., object], args: Collection[object], settings: Mapping[str, object]
) -> None:
    """Check that a feature has the given settings, and accepts them as they are passed.

    Raises:
        TypeError: a setting is unknown or cannot be passed like this; the error says what to write.
    """
    try:
        known = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # of a builtin, which does not say
        return
    kinds = {each.kind for each in known}
    places = [each.name for each in known if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    names = [each.name for each in known if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        check_options(feature, settings, names)
    surplus = len(args) - len(places)
    if surplus > 0 and inspect.Parameter.VAR_POSITIONAL not in kinds:
        meant = [f"{each}=…" for each in names if each not in places and each not in settings][:surplus]
        raise TypeError(f"{feature} takes its settings by name; write agent.install({', '.join([feature, *meant])})")


def check_word(what: str, given: object, words: Iterable[Word]) -> None:
    """Check that an option is one of the given words, which may include True and False.

    Raises:
        ValueError: the option is another word; the error names the nearest word, or all of them.
    """
    every = tuple(words)
    if not any(type(given) is type(word) and given == word for word in every):
        nearest = _nearest(given, [word for word in every if isinstance(word, str)]) if isinstance(given, str) else ""
        *others, last = map(repr, every)
        known = f"there are {', '.join(others)} and {last}" if others else f"there is {last}"
        hint = f"did you mean {nearest!r}?" if nearest else known
        raise ValueError(f"{what}={_shown(given)} is not known; {hint}")


def check_flag(what: str, given: object) -> None:
    """Check that an option is True or False. Other values would count as one of them, such as "no" as True.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(given, bool):
        raise TypeError(f"{what}={_shown(given)} is neither True nor False")


def check_text(what: str, given: object) -> None:
    """Check that an option is text.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(given, str):
        raise TypeError(f"{what} is text, not {kind_of(given)}")


def check_name(what: str, given: object, example: str) -> None:
    """Check that an option is a name that a store can keep: text, and not empty.

    Raises:
        TypeError: the option is not text; the error shows the example.
        ValueError: the option is empty, or contains half a surrogate pair.
    """
    if not isinstance(given, str):
        raise TypeError(f"{what}= is a name, such as {example}, not {kind_of(given)}")
    if not given:
        raise ValueError(f"{what}='' is not a name; give one, such as {example}")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what}= contains half a surrogate pair, which cannot be stored") from None


def check_number(what: str, given: object) -> None:
    """Check that an option is a number.

    Raises:
        TypeError: it is not one.
    """
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise TypeError(f"{what}={_shown(given)} is not a number, such as 0.5")


def check_whole(what: str, given: object) -> None:
    """Check that an option is a whole number.

    Raises:
        TypeError: it is not one.
    """
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{what}={_shown(given)} is not a whole number, such as 10")


def check_limit(what: str, given: object) -> None:
    """Check that an option is a limit: a whole number of at least 1.

    Raises:
        ValueError: it is not.
    """
    if type(given) is not int or given < 1:
        raise ValueError(f"{what}={_shown(given)} is not a limit; give a whole number of at least 1")


def check_mapping(what: str, given: object, example: str) -> None:
    """Check that an option is a dictionary.

    Raises:
        TypeError: the option is not a dictionary; the error shows the example.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} is a dict, such as {example}, not {kind_of(given)}")


def check_methods(what: str, given: object, protocol: type) -> None:
    """Check that an object has no misspelt method of a protocol, which would never be called.

    Raises:
        TypeError: a method is misspelt; the error names the nearest method of the protocol.
    """
    from difflib import get_close_matches

    kind, known = type(given), [name for name in vars(protocol) if not name.startswith("_")]
    own = [name for each in kind.__mro__ if each not in (protocol, object) for name in vars(each)]
    left = [name for name in known if name not in own]
    for name in own:
        if not name.startswith("_") and name not in known and callable(getattr(kind, name)):
            near = get_close_matches(name, left, n=1, cutoff=0.85)
            if near:
                raise TypeError(f"{what} has a method {name!r}, which would never be called; did you mean {near[0]}?")


def check_path(what: str, path: object, example: str) -> None:
    """Check that an option is the path of a file or folder, and not another notation for a database.

    Raises:
        TypeError: the option is not a path.
        ValueError: the option is the name of a database in memory, or a URL, of which the error shows the scheme alone.
    """
    if not isinstance(path, str | PathLike):
        raise TypeError(f"{what} is a path, such as {example}, not {kind_of(path)}")
    if path in ("", ":memory:"):
        raise ValueError(
            f"{what}{path!r} is not a path, such as {example}; for data that end with the process use a MemoryStore(), of graphagent.store"
        )
    url = re.match(r"[a-z][a-z0-9+.-]+://|file:", path, re.IGNORECASE) if isinstance(path, str) else None
    if url and url[0].lower().startswith("postgres"):
        raise ValueError(
            f"{what}'{url[0]}…' is a database on a server; its data are read and written by PostgresStore(dsn), of "
            f"graphagent.store.postgres, not by a path"
        )
    if url:
        raise ValueError(f"{what}'{url[0]}…' is a URL; give a path, such as {example}")


def check_zone(what: str, time: datetime | None) -> None:
    """Check that a time, if given, has a time zone: without one, it is another moment on another machine.

    Raises:
        ValueError: the time has no zone.
    """
    if time is not None and time.utcoffset() is None:
        raise ValueError(
            f"{what}={time.isoformat()} has no time zone; write datetime(…, tzinfo=UTC), or time.astimezone() if it is in the zone of "
            f"this machine"
        )


def check_budgets(**budgets: Any) -> None:
    """Check that budgets are numbers of 0 or more, or None. Those of nodes, turns and tokens must be whole numbers.

    Raises:
        ValueError: a budget is not valid.
    """
    for name, limit in budgets.items():
        if limit is None:
            continue
        whole = name not in ("max_cost", "max_seconds")
        is_number = isinstance(limit, int) if whole else isinstance(limit, int | float | Decimal)
        if not is_number or isinstance(limit, bool) or math.isnan(limit) or limit < 0:
            what = "a whole number" if whole else "a number"
            raise ValueError(f"{name}={limit!r} is not a budget; it must be {what} of 0 or more, or None for no limit")


def cost_limit(given: Decimal | str | float | None) -> Decimal | float | None:
    """Return a budget of money as a number. Text gives an exact number, such as `"0.03"`, as in prices.

    Raises:
        ValueError: the text is not a number.
    """
    try:
        return Decimal(given) if isinstance(given, str) else given
    except InvalidOperation:
        raise ValueError(
            f"max_cost={given!r} is not a budget; it must be a number of 0 or more, such as '0.03', or None for no limit"
        ) from None


def check_tools(tools: object) -> None:
    """Check that tools are a list of objects with names. The agent checks the rest.

    Raises:
        TypeError: they are not.
    """
    if isinstance(tools, type | str) or not isinstance(tools, Iterable):
        raise TypeError(f"tools= is a list, not {kind_of(tools)}; write tools=[tool]")
    for each in cast("Iterable[object]", tools) if isinstance(tools, list | tuple) else ():
        if not hasattr(each, "name"):
            raise TypeError(f"{getattr(each, '__name__', each)!r} is not a tool; decorate the function with @tool")


def check_by_name(method: str, others: tuple[object, ...], *parameters: str) -> None:
    """Check that no argument was passed by position to a method that takes its arguments by name alone.

    Raises:
        TypeError: an argument was passed by position; the message has the lines to write.
    """
    if others:
        raise TypeError(
            f"{method}() takes its arguments by name: write {' or '.join(f'{method}({each})' for each in parameters)}"
        )


def check_can(method: str, given: object, what: str, example: str = "") -> None:
    """Check that an object has a method, and that it is an instance, not the class.

    Raises:
        TypeError: it does not; `what` names the expected value, and `example` what to write.
    """
    if isinstance(given, type) or not callable(getattr(given, method, None)):
        raise TypeError(f"{what}, not {kind_of(given)}{example and f'; write {example}'}")


def check_store(store: object) -> None:
    """Check that an object is a store of runs.

    Raises:
        TypeError: the object is not a store, but the path of one, for example.
    """
    check_can("commit", store, "store= is a store, such as SqliteStore('runs.db')")


def check_dispatcher(dispatcher: object) -> None:
    """Check that an object is a dispatcher, or None.

    Raises:
        TypeError: the object is neither.
    """
    if dispatcher is not None:
        check_can(
            "tell", dispatcher, "dispatcher= is a Dispatcher", "Procrastinate(dsn), of graphagent.work.procrastinate"
        )


def check_model(model: object) -> None:
    """Check that a model can be asked.

    Raises:
        TypeError: the object is not a model: it has no name, or its `respond` cannot be called as a model's.
    """
    check_can("respond", model, "model= is an object that responds, such as OpenAIModel('gpt-…')")
    check_respond(model)


def check_respond(model: object) -> None:
    """Check that a model has a name, and that its `respond` takes a request and the listener for the text.

    Raises:
        TypeError: the name is missing, or `respond` takes other arguments.
    """
    if not isinstance(getattr(model, "name", None), str):
        raise TypeError(f"the model, {kind_of(model)}, has no name; give it one, such as name = 'my-model'")
    respond: Any = getattr(model, "respond", None)
    call = "async def respond(self, request, on_text=None)"
    if inspect.isasyncgenfunction(respond):
        raise TypeError(f"the respond of {kind_of(model)} yields; return a whole ModelResponse: `{call}`")
    try:
        signature = inspect.signature(respond)
    except (TypeError, ValueError):  # of a builtin, which does not say
        return
    try:
        signature.bind(None, None)
    except TypeError:
        raise TypeError(f"the respond of {kind_of(model)} takes {signature}; write `{call}`") from None


def _nearest(given: str, known: Iterable[str]) -> str:
    """Return the nearest of some names; empty if none is near."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(given, tuple(known), n=1)), "")


def _shown(given: object) -> str:
    """Return a value as errors show it: a number or a short text as it is, and any other value by its kind."""
    return repr(given) if given is None or isinstance(given, str | int | float) else kind_of(given)
