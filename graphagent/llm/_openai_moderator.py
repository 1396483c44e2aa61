"""A moderator over the OpenAI protocol."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast

from graphagent._openai_http import Server
from graphagent._options import check_text
from graphagent.errors import ModelRequestError
from graphagent.llm._moderation import Moderation


class OpenAIModerator:
    """OpenAI's endpoint for moderations, and those of servers that have the same.

    One object serves any number of runs and event loops. The HTTP client is made at the first request and closed with its event loop;
    `async with` or `aclose()` closes it earlier.
    """

    def __init__(
        self,
        model: str = "omni-moderation-latest",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Name a model and, if it is not OpenAI's, its server.

        Args:
            model: The name by which the server knows the model.
            base_url: The address of the server, such as `http://localhost:8000/v1`. By default OPENAI_BASE_URL or OpenAI's own.
            api_key: The key; by default OPENAI_API_KEY, but never for a `base_url` that is given here.
            timeout: Seconds to wait for each piece of an answer, by default 10 minutes. The whole may take longer.
            max_retries: How often a request is repeated that may succeed later (429, 5xx, lost connections), after 0.5 seconds, 1, 2 …, or as
                long as the server's Retry-After says; after one of more than 60 seconds it is not repeated.
            headers: Sent with every request.

        Raises:
            TypeError: an argument is not of its type.
            ValueError: `base_url` is not an address, `max_retries` is negative, or `timeout` is not above 0.
        """
        check_text("model=", model)
        self.name = model
        """The name by which the server knows the model."""
        self._server = Server(
            f"moderator {model!r}",
            error=ModelRequestError,
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
            max_retries=max_retries,
            headers=headers,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._server}>"

    async def moderate(self, text: str) -> Moderation:
        """Return the server's verdict about a text. Text without any letter is not sent, and not flagged.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached.
        """
        if not text.strip():
            return Moderation(flagged=False)
        answer = await self._server.post("/moderations", {"model": self.name, "input": text})
        try:
            result: dict[str, Any] = cast("Any", answer)["results"][0]
            flagged: object = result["flagged"]
            named: dict[str, object] = result.get("categories") or {}
            categories = tuple(name for name, applies in named.items() if applies is True)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._no_verdict() from error
        if not isinstance(flagged, bool):
            raise self._no_verdict()
        return Moderation(flagged, categories)

    def _no_verdict(self) -> ModelRequestError:
        return ModelRequestError(f"{self._server} answered without a verdict; check base_url and the model's name")

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
