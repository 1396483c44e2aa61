"""A model whose answers are kept in a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent._details import Usage
from graphagent._options import check_can
from graphagent.llm._json_form import digest_of, dumps, model_json, read_response, request_json, response_json
from graphagent.llm._whole import is_empty
from graphagent.llm._wrappers import check_model, tells_cost
from graphagent.store._cache import Cache, asker, erase_expired

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest, ModelResponse
    from graphagent.protocols import Model, Store

_FORMAT = 1
"""Of requests and responses; part of the name of an entry, so that entries of another format are not found."""
_BROKEN_OFF = ("length", "content_filter", "failed")


class CachedModel:
    """A model that answers an equal request from a store: `CachedModel(model, SqliteStore("answers.db"), ttl=3600)`.

    Requests are equal if everything in them is that the model sees: messages with images and data of providers, tools with their
    schemas, the tool choice, the output format and the parameters; and if the model has the same name, server and parameters. Ids
    of tool calls do not count. The store contains answers in full, and requests as a hash only.

    An answer from the store has no usage, since it costs nothing, and names the model that produced it. Answers that were cut off or
    withheld, and those without text and tool call, are not stored. An entry that has expired, or that cannot be read, is replaced.
    """

    def __init__(self, model: Model, store: Store, *, ttl: float | None = None, owner: str | None = None) -> None:
        """Wrap a model.

        Args:
            model: The model that is asked for answers that the store does not have.
            store: Any store, such as a SqliteStore or an EncryptedStore; it may contain other things too.
            ttl: Seconds for which an answer is kept; None for as long as the store.
            owner: Whose answers they are, found for the same owner only, and erased with the forgotten data of that owner in this
                store. By default, they belong to the owner of the run or of the notes that ask; a name of your own lets all share them.

        Raises:
            SerializationError: a parameter of the model is not JSON.
            TypeError: `model` is not a model, `store` not a store, or `ttl` not a number.
            ValueError: `ttl` is not above 0, or not finite.
        """
        example = "CachedModel(model, store, ttl=3600)"
        check_model("a CachedModel", model, example)
        check_can("commit", store, "a CachedModel takes a store", example)
        self.model = model
        """The model that is asked."""
        self.store = store
        """The store that has the answers."""
        self._ttl, self._owner = ttl, owner
        self._answers()  # so that a wrong ttl is refused here
        self._asked = [_FORMAT, model_json(model)]
        digest_of(self._asked)  # so that parameters that are not JSON are refused here

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.name

    @property
    def tells_cost(self) -> bool:
        """Whether the answers of the model say what they cost."""
        return tells_cost(self.model)

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Return the stored answer to an equal request, whose text is streamed at once; or ask the model and store its answer.

        Raises:
            ModelRequestError: as the model raises it.
            SerializationError: the request has a parameter that is not JSON.
            StoreError: the store cannot be read or written.
        """
        cache, name, run = self._answers(), self._name_of(request), asker.get()
        found = await cache.get(name)
        response = None if found is None else _read(found)
        if response is None:
            response = await self.model.respond(request, on_text)
            if response.finish_reason not in _BROKEN_OFF and not is_empty(response.message):
                # Without its usage: nothing is spent on the answer when it comes from the store.
                head = run.header if run.store is self.store else None
                await cache.put(name, dumps(response_json(replace(response, usage=Usage()))), head)
        elif on_text is not None and response.message.text:
            on_text(response.message.text)
        return response

    async def forget(self, request: ModelRequest) -> None:
        """Erase the stored answer to a request, if it exists.

        Raises:
            StoreError: the store cannot be written.
        """
        await self._answers().erase(self._name_of(request))

    async def clear(self, *, expired: bool = False) -> None:
        """Erase all stored answers of this owner, also of other models; with `expired`, only expired ones.

        Without an owner, these are the answers to runs without an owner; `clear_cache(store, owner=…)` erases those of an owner.

        Raises:
            StoreError: the store cannot be written.
        """
        if expired:
            await erase_expired(self.store, self._answers().prefix)
        else:
            await self._answers().erase()

    def _answers(self) -> Cache:
        """Return the cache with the answers of the owner that asks."""
        return Cache(self.store, "model", asker.get().owner if self._owner is None else self._owner, self._ttl)

    def _name_of(self, request: ModelRequest) -> str:
        return digest_of(self._asked, request_json(request))

    def __repr__(self) -> str:
        return f"<{self.model!r}, cached in {self.store!r}>"


def _read(data: bytes) -> ModelResponse | None:
    """Return a stored answer; None if it cannot be read, or has a number that JSON does not have."""
    try:
        return read_response(json.loads(data.decode(), parse_constant=_refused))
    except (ValueError, RecursionError):
        return None


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
