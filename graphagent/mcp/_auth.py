"""Access to MCP servers by OAuth: the grants of owners are in the store, and the sign-in with the browser is a question of the run.

The flow is that of the SDK. It is executed again when the run is resumed: then it finds the answer, and the state and the verifier
of the sign-in that were stored with the question. Requests of a connection carry the token, and refresh it. The file is long because
a request, a refusal and a sign-in change the same grant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from secrets import compare_digest
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import anyio

from graphagent._article import counted
from graphagent.errors import ConflictError, DeclinedError, MissingExtraError, ToolServerError

try:  # the first file of the room that is imported
    import httpx2
    from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
    from mcp.client.auth.oauth2 import PKCEParameters
    from mcp.shared.auth import (
        AuthorizationCodeResult,
        OAuthClientInformationFull,
        OAuthClientMetadata,
        OAuthMetadata,
        OAuthToken,
        ProtectedResourceMetadata,
    )
except ModuleNotFoundError:
    raise MissingExtraError("MCPServer", "mcp") from None
from pydantic import AfterValidator, AliasChoices, AnyUrl, BaseModel, Field, ValidationError

from graphagent import _clock
from graphagent.mcp._responses import read
from graphagent.store import Put
from graphagent.store._grants import grants_of

if TYPE_CHECKING:
    from graphagent.mcp._responses import Refused
    from graphagent.protocols import Store
    from graphagent.store import Key

_REPLY = 30.0
"""Seconds that servers of OAuth may take to give a token, for which one process changes tokens and the others wait."""
_PAUSE = 0.05
"""Seconds after which they look again."""
_LONGEST = 200
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_CODES = frozenset((
    "access_denied", "invalid_client", "invalid_client_metadata", "invalid_grant", "invalid_redirect_uri", "invalid_request", "invalid_scope",
    "invalid_target", "server_error", "temporarily_unavailable", "unauthorized_client", "unsupported_grant_type", "unsupported_response_type",
))  # fmt: skip
"""The error codes that may be shown. Other text of a server could repeat a secret that it was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """How an agent gets access to an MCP server on behalf of the owner of a run: `MCPServer.http(url, auth=OAuth())`.

    If the server wants a token, the run waits. Its question shows an address for the owner to visit, and the answer is the
    address to which the browser is then sent. Tokens are kept in the store of the agent, under the owner, until these are
    forgotten with `forget_runs(store, owner=…)`; without a store, in the server object.
    """

    redirect_uri: str = "http://127.0.0.1:8421/callback"
    """Where the browser is sent: a page of yours, which answers the question; or one of this machine, whose address can be pasted
    even if nothing listens there. `graphagent run` does."""
    scopes: Collection[str] = ()
    """The scopes to request; by default those that the server demands."""
    client_name: str = "graphagent"
    """The name of the agent, as shown to the owner."""
    client_id: str = ""
    """The id of an agent that was registered at the server by hand; by default the agent registers itself."""
    client_secret: str = field(default="", repr=False)
    """The secret that belongs to `client_id`."""
    client_metadata_url: str | None = None
    """The address of a document that describes the agent, for servers that take it in place of a registration."""

    def __post_init__(self) -> None:
        if isinstance(self.scopes, str):
            raise TypeError(f"scopes is a list of scopes, such as {self.scopes.split()!r}, not one text")
        parts = urlsplit(self.redirect_uri)
        if not parts.scheme or not (parts.netloc or parts.path) or parts.fragment:
            raise ValueError(
                f"redirect_uri={self.redirect_uri!r} is not an address such as 'https://example.org/callback'"
            )
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError(
                f"redirect_uri={self.redirect_uri!r} must begin with https://, since it is not an address of this machine"
            )
        if self.client_secret and not self.client_id:
            raise ValueError("client_secret= belongs to a client_id=, which is missing")

    def metadata(self) -> OAuthClientMetadata:
        """Return the metadata with which the agent registers."""
        return OAuthClientMetadata(
            redirect_uris=[AnyUrl(self.redirect_uri)], scope=" ".join(self.scopes) or None, client_name=self.client_name,
            application_type="web" if self.redirect_uri.startswith("https:") else "native",
        )  # fmt: skip

    def client(self, server: OAuthMetadata | None) -> OAuthClientInformationFull | None:
        """Return the registration that was made by hand, if there is one."""
        if not self.client_id:
            return None
        known = (server and server.token_endpoint_auth_methods_supported) or ["client_secret_basic"]
        method = "client_secret_basic" if "client_secret_basic" in known else "client_secret_post"
        return OAuthClientInformationFull(
            client_id=self.client_id, client_secret=self.client_secret or None, redirect_uris=[AnyUrl(self.redirect_uri)],
            token_endpoint_auth_method=method if self.client_secret else "none",
        )  # fmt: skip


class SignIn(BaseModel):
    """A sign-in with the browser that the owner is asked to make."""

    address: str = Field(repr=False)
    state: str = Field(repr=False)
    verifier: str = Field(repr=False)

    def read(self, redirect: str) -> dict[str, str]:
        """Return the parameters of the address to which the server sends the browser, or of its query alone.

        Raises:
            ValueError: The text is not such an address, or belongs to another sign-in.
        """
        place, query = "", redirect.strip()
        if "://" in query:
            wanted, given = urlsplit(parse_qs(urlsplit(self.address).query)["redirect_uri"][0]), urlsplit(query)
            if (given.scheme, given.netloc, given.path or "/") != (wanted.scheme, wanted.netloc, wanted.path or "/"):
                place = f"{wanted.scheme}://{wanted.netloc}{wanted.path}"
            query = given.query
        said = dict(parse_qsl(query.removeprefix("?")))
        if place:
            raise ValueError(f"this is another place than {place}, to which the browser is sent after the sign-in")
        if not said.keys() & {"code", "error"}:
            raise ValueError(
                "give the whole address to which the browser is sent after the sign-in, or its code=…&state=…"
            )
        if not compare_digest(said.get("state", "").encode(), self.state.encode()):
            raise ValueError(
                "this belongs to another sign-in, since its state is another one; visit the address of this question"
            )
        return said

    def checked(self, redirect: str) -> str:
        """Return an answer that is the redirect of this sign-in.

        Raises:
            ValueError: The answer is not this redirect.
        """
        self.read(redirect)
        return redirect

    def asks_for(self, address: str) -> bool:
        """Return whether an address asks the same server for the same."""
        return _without_keys(address) == _without_keys(self.address)


def _without_keys(address: str) -> tuple[str, dict[str, str]]:
    place, _, query = address.partition("?")
    return place, {name: each for name, each in parse_qsl(query) if name not in ("state", "code_challenge")}


class Grant(BaseModel):
    """The grant stored for an owner and a server."""

    client: OAuthClientInformationFull | None = Field(default=None, repr=False)
    tokens: OAuthToken | None = Field(default=None, repr=False)
    expires: int = 0
    """When the token expires, in milliseconds UTC; 0 if the server does not say."""
    server: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None
    sign_in: SignIn | None = Field(
        default=None, validation_alias=AliasChoices("sign_in", "visit")
    )  # "visit" in older stores
    busy: int = 0
    """Until when a process changes the tokens, and others wait, in milliseconds UTC."""

    @property
    def token(self) -> str:
        """The token that requests carry, or empty."""
        return "" if self.tokens is None else self.tokens.access_token

    @property
    def is_expired(self) -> bool:
        """Whether the token has expired and can be refreshed."""
        return self.tokens is not None and bool(self.tokens.refresh_token) and 0 < self.expires <= _clock.now()


class Access(httpx2.Auth):
    """The access of an owner to a server, as the store has it. Requests carry the token, and refresh it after its time."""

    def __init__(self, server: str, url: str, oauth: OAuth, store: Store, owner: str) -> None:
        self.server = server
        self.url = url
        self.oauth = oauth
        self._store = store
        # Another address or another registration is another grant; the address may be secret.
        same = [url, oauth.redirect_uri, oauth.client_id, oauth.client_metadata_url, sorted(oauth.scopes)]
        self.place = (id(store), owner)
        """Distinguishes this access from others, for the lifetime of its store."""
        self._key: Key = (*grants_of(owner), hashlib.sha256(json.dumps(same).encode()).hexdigest())

    def __repr__(self) -> str:
        return f"<access to {self.server!r}>"

    # ---- requests

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Have a request carry the token, which is refreshed after its time."""
        grant, _ = await self._read()
        if grant.is_expired:
            with suppress(ToolServerError):  # the old token is refused, and that caller tries again
                await self.refreshed(grant.token)
            grant, _ = await self._read()
        if grant.token:
            request.headers["Authorization"] = f"Bearer {grant.token}"
        yield request

    async def refreshed(self, token: str) -> bool:
        """Return whether an expired token has been replaced, by another task meanwhile or by this call.

        Raises:
            ToolServerError: the server of OAuth cannot be reached, or fails.
        """
        found = False
        with anyio.CancelScope(shield=True):  # a refresh token may be used once, so its answer must not be lost
            async with self._alone() as grant:
                found = grant.token not in ("", token) or await self._refresh(grant)
        return found

    async def renew(self, refused: Refused, ctx: Any) -> bool:
        """Have the owner grant access after a token was refused. Return whether that was unnecessary, since another token exists by now.

        Raises:
            ToolServerError: there is none.
        """
        async with self._alone() as grant:
            if grant.token not in ("", refused.token):
                return False
            await self._authorize(grant, refused, ctx)
            return True

    # ---- the store, of which the flow sees a part

    async def _read(self) -> tuple[Grant, int]:
        item = await self._store.get(self._key)
        if item is None:
            return Grant(), 0
        try:
            return Grant.model_validate_json(item.value), item.version
        except ValidationError:  # another version of graphagent wrote it
            return Grant(), item.version

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[Grant]:
        """Keep all other tasks and processes from changing tokens for a while, since a refresh token may be used once. Yield the stored grant.

        Raises:
            ToolServerError: The time is over.
        """
        while True:
            grant, version = await self._read()
            if _clock.now() < grant.busy:
                await anyio.sleep(_PAUSE)
                continue
            with suppress(ConflictError):
                await self._put(grant.model_copy(update={"busy": _clock.now() + int(_REPLY * 1000)}), version)
                break
        try:
            with anyio.fail_after(_REPLY):
                yield grant
        except TimeoutError:
            reason = f"gave no access within {counted(_REPLY, 'second')}; try again"
            raise ToolServerError(self.server, reason) from None
        finally:
            with anyio.CancelScope(shield=True):
                await self.change(busy=0)

    async def change(self, **changes: Any) -> None:
        """Change the stored grant, if it was not forgotten meanwhile."""
        while True:
            grant, version = await self._read()
            if not version:
                return
            with suppress(ConflictError):
                await self._put(grant.model_copy(update=changes), version)
                return

    async def _put(self, grant: Grant, version: int) -> None:
        await self._store.commit(Put(self._key, grant.model_dump_json(exclude_none=True).encode(), expected=version))

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return (await self._read())[0].tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens."""
        expires = 0 if tokens.expires_in is None else _clock.now() + tokens.expires_in * 1000
        await self.change(tokens=tokens, expires=expires)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registration."""
        return (await self._read())[0].client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a registration."""
        await self.change(client=client_info)

    async def sign_in(self, address: str, flow: OAuthClientProvider) -> SignIn:
        """Return the sign-in for an address: the pending one, or a new one, which is stored."""
        grant, _ = await self._read()
        found = grant.sign_in
        if found is None or not found.asks_for(address):
            pkce = PKCEParameters.generate()
            place, _, query = address.partition("?")
            said = {**dict(parse_qsl(query)), "code_challenge": pkce.code_challenge}
            found = SignIn(address=f"{place}?{urlencode(said)}", state=said["state"], verifier=pkce.code_verifier)
            await self.change(
                sign_in=found, server=flow.context.oauth_metadata, resource=flow.context.protected_resource_metadata
            )
        return found

    # ---- tokens

    async def _refresh(self, grant: Grant) -> bool:
        """Exchange the refresh token. Return whether a new token was received.

        Raises:
            ToolServerError: the server of OAuth cannot be reached, or fails.
        """
        flow = _Flow(self, grant)
        if not flow.context.can_refresh_token():
            return False
        flow.context.oauth_metadata, flow.context.protected_resource_metadata = grant.server, grant.resource
        response, wrong = await self._sent(await flow.refreshing())
        if not wrong:
            await flow.refreshed(response)
        elif response.status_code in (400, 401, 403):  # other codes, such as 429, say nothing about the tokens
            await self.change(tokens=None)
        else:
            raise ToolServerError(self.server, f"could not refresh its token: {wrong}")
        return not wrong

    async def _authorize(self, grant: Grant, refused: Refused, ctx: Any) -> None:
        """Go through the flow of the SDK after a server refused a request.

        Raises:
            ToolServerError: The flow failed, or the owner does not grant access.
        """
        if ctx is None:
            raise ToolServerError(
                self.server, "wants to be granted access, for which a run can ask its owner; use it in one"
            )
        flow = _Flow(self, grant, ctx, more=refused.more)
        request = httpx2.Request("POST", self.url)
        steps = flow.async_auth_flow(request)
        try:
            await anext(steps)
            step = await steps.asend(refused.response)
            while step is not request:
                response, wrong = await self._sent(step)
                if wrong:
                    raise ToolServerError(self.server, f"gave no access: {wrong}")
                step = await steps.asend(response)
        except _DeniedError as denied:
            raise ToolServerError(
                self.server, f"was not granted access ({denied}); resume the run to ask again"
            ) from None
        except (OAuthRegistrationError, OAuthTokenError, ValidationError):  # their messages repeat those of the server
            raise ToolServerError(self.server, "gave no access, since its answer violates OAuth") from None
        except OAuthFlowError as error:
            raise ToolServerError(self.server, f"gave no access: {str(error)[:_LONGEST]}") from None
        finally:
            await steps.aclose()

    async def _sent(self, request: httpx2.Request) -> tuple[httpx2.Response, str]:
        """Send a request of the flow. Return the response, and its fault, since the SDK would log the whole response.

        Raises:
            ToolServerError: No response came, or the request would be sent unprotected.
        """
        host = request.url.host
        if request.url.scheme != "https" and self.url.startswith("https:") and host not in _LOOPBACK:
            raise ToolServerError(self.server, f"sends secrets to {host} without TLS; it must be corrected")
        try:
            async with httpx2.AsyncClient(timeout=None) as client:
                response = await read(await client.send(request, stream=True))
        except httpx2.HTTPError as error:
            reason = f"gave no access, since {host} cannot be reached ({type(error).__name__})"
            raise ToolServerError(self.server, reason) from None
        if request.method != "POST":
            return response, ""
        if response.next_request is not None:
            other = response.next_request.url
            same = (other.scheme, other.netloc) == (request.url.scheme, request.url.netloc)
            return response, "" if same else f"{host} redirects to {other.host}, which is sent nothing"
        is_form = request.headers.get("content-type") == "application/x-www-form-urlencoded"
        wrong = _wrong(response, OAuthToken if is_form else OAuthClientInformationFull)
        if is_form and wrong.endswith("invalid_client"):
            await self.change(client=None)
        return response, f"{host} {wrong}" if wrong else ""


def _wrong(response: httpx2.Response, kind: type[BaseModel]) -> str:
    """Return the fault of a response, without anything that could be secret; empty if the response is sound."""
    if response.status_code in (200, 201):
        try:
            kind.model_validate_json(response.content)
        except ValidationError:
            return "gave an answer that violates OAuth"
        return ""
    try:
        code = json.loads(response.content)["error"]
    except (ValueError, LookupError, TypeError):
        code = ""
    return f"answered {response.status_code}{f', {code}' if code in _CODES else ''}"


class _DeniedError(BaseException):
    """Raised to leave the flow of the SDK, which would log any other error."""


class _Flow(OAuthClientProvider):
    """The flow of the SDK, in which the sign-in with the browser is a question of a run."""

    def __init__(self, access: Access, grant: Grant, ctx: Any = None, *, more: bool = False) -> None:
        oauth = access.oauth
        super().__init__(access.url, oauth.metadata(), access, self._send, self._answer, oauth.client_metadata_url)
        self._access, self._ctx = access, ctx
        self._scopes = () if more else oauth.scopes
        self._address = self._verifier = ""
        self._initialized = True
        self.context.client_info = oauth.client(grant.server) or grant.client
        self.context.current_tokens = grant.tokens
        ends = self.context.client_info and self.context.client_info.client_secret_expires_at
        if ends and ends * 1000 <= _clock.now():
            self.context.client_info = None

    async def refreshing(self) -> httpx2.Request:
        """Return the request that exchanges the refresh token."""
        return await self._refresh_token()

    async def refreshed(self, response: httpx2.Response) -> None:
        """Store the tokens that the flow received."""
        await self._handle_refresh_response(response)

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        if self._scopes:  # the SDK has put those of the server in their place
            self.context.client_metadata.scope = " ".join(self._scopes)
        code, _ = await super()._perform_authorization_code_grant()
        return code, self._verifier

    async def _send(self, address: str) -> None:
        self._address = address

    async def _answer(self) -> AuthorizationCodeResult:
        """Return the redirect of the owner's sign-in, or have the run wait for it."""
        sign_in = await self._access.sign_in(self._address, self)
        asks = f"May {self._access.server!r} be used for you? Visit this address, and answer with the one to which the browser is then sent: {sign_in.address}"
        try:
            said = sign_in.read(
                await self._ctx.ask(
                    asks, Annotated[str, AfterValidator(sign_in.checked)], about=sign_in.address, id=f"{self._access.server}:{sign_in.state[:8]}",
                )
            )  # fmt: skip
        except DeclinedError:
            said = {"error": "access_denied"}
        await self._access.change(sign_in=None)  # a code may be used once
        if "code" not in said:
            raise _DeniedError(said["error"] if said["error"] in _CODES else "the server does not say why")
        self._verifier = sign_in.verifier
        # The SDK has made another address meanwhile, and compares with its state.
        return AuthorizationCodeResult(
            code=said["code"], state=dict(parse_qsl(urlsplit(self._address).query))["state"], iss=said.get("iss")
        )
