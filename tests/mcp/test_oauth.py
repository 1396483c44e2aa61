"""MCP servers that owners grant access to by OAuth: real servers, on loopback."""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from functools import partial

import anyio
import pytest

from graphagent.errors import AnswerError, StoreError, ToolServerError
from graphagent.history import forget_runs
from graphagent.llm import Deny, ToolCall, ToolCalls
from graphagent.mcp import MCPServer, OAuth
from graphagent.mcp import _auth as auth
from graphagent.mcp import _server as module
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from tests.mcp.oauth import serving, visit
from tests.mcp.test_stdio import agent, results

# The client leaves generators of httpx2 unfinished, which trio alone remarks on.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(httpx2|httpcore2):ResourceWarning")


@pytest.fixture
def site():
    with serving() as found:
        yield found


def using(site, store, *replies, limit=1, **options):
    """Return an agent with a server object of its own, as another process has it."""
    server = MCPServer.http(f"{site.url}/mcp", name="site", auth=OAuth(**options))
    return agent(server, *replies, store=store, limit=limit)


def then(do, reply):
    """Return a reply of the model, before which something happens."""

    def answered(_):
        do()
        return reply

    return answered


async def granted(site, store, owner="ada", **options):
    """Have an owner grant access."""
    async with using(site, store, **options) as asking:
        result = await asking.run("go", owner=owner)
        url = visit(result.pending.about, owner)
        assert (await asking.resume(result.run_id, owner=owner, answer=url)).output == "done"


async def test_a_run_waits_for_the_sign_in_and_another_process_takes_the_redirect(site, tmp_path):
    """The question shows the address; in the sealed store, neither tokens nor the verifier can be read."""
    key = new_key()

    def store():
        return EncryptedStore(SqliteStore(tmp_path / "runs.db"), key)

    async with store() as first, using(site, first) as asking:
        result = await asking.run("go", run_id="r", owner="ada")
        [question] = result.questions
        assert question.about.startswith(f"{site.url}/authorize?")
        assert question.question.startswith("May 'site' be used for you? Visit this address,")
        assert question.question.endswith(question.about)
    redirect = visit(question.about, "ada")
    async with store() as second, using(site, second, ToolCall("whoami")) as answered:
        result = await answered.resume("r", owner="ada", answer=redirect)
        assert (result.output, results(answered)[0].content) == ("done", "whoami for ada")
    kept = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert not any(each.encode() in kept for each in [*site.secrets, "code_verifier", "127.0.0.1"])


async def test_a_server_that_knows_the_newest_protocol_alone_asks_too(site):
    """It refuses the first request for lack of a token, and that of earlier versions since it does not know it."""
    site.is_modern = True
    await granted(site, MemoryStore())


async def test_what_follows_the_question_mark_is_an_answer_too(site):
    """Whoever handles the redirect may pass on its query alone."""
    async with using(site, MemoryStore()) as asking:
        result = await asking.run("go", run_id="r")
        assert (await asking.resume("r", answer=visit(result.pending.about, "ada").partition("?")[2])).output == "done"


async def test_without_a_store_the_server_object_has_the_tokens(site):
    """A second run is not asked again."""
    async with using(site, None) as asking:
        result = await asking.run("go")
        asking.last.answer(visit(result.pending.about, "ada"))
        assert (await asking.last.finish()).output == "done"
    assert site.asked.count("authorization_code") == 1


async def test_each_owner_has_tokens_of_their_own_which_are_forgotten_with_them(site):
    """The same agent acts for either; afterwards the forgotten one is asked again, and the other is not."""
    store, found = MemoryStore(), {}
    await granted(site, store, "ada")
    await granted(site, store, "bob")
    async with using(site, store, *[ToolCall("whoami"), "done"] * 2, *[ToolCall("whoami")] * 2) as running:
        for owner in ("ada", "bob"):
            await running.run("go", owner=owner)
            found[owner] = results(running)[-1].content
        assert found == {"ada": "whoami for ada", "bob": "whoami for bob"}
        assert (await forget_runs(store, owner="ada")).bytes > 0
        assert [item.key[1] async for item in store.scan(("grants",))] == ["bob"]
        assert (await running.run("go", owner="ada")).status == "waiting"
        assert (await running.run("go", owner="bob")).output == "done"


@pytest.mark.every_loop
async def test_an_expired_token_is_refreshed_once_by_whichever_process_needs_it(site, tmp_path):
    """Two that need it at the same time do not spoil the refresh token, which may be used once."""
    site.lifetime = 0
    await granted(site, SqliteStore(tmp_path / "runs.db"))
    site.lifetime = 3600
    site.asked.clear()

    async def run():
        async with using(site, SqliteStore(tmp_path / "runs.db"), ToolCall("whoami")) as running:
            assert (await running.run("go", owner="ada")).output == "done"

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(run)
    assert (site.asked.count("refresh_token"), site.asked.count("/authorize")) == (1, 0)
    assert site.calls == [("whoami", "ada")] * 3


@pytest.mark.every_loop
async def test_a_token_is_refreshed_to_the_end_though_the_connection_is_closed(site):
    """The refresh token has been used, so its answer is stored, and the owner is not asked again."""
    store, site.lifetime = MemoryStore(), 0
    await granted(site, store)
    site.lifetime = 3600
    site.gives.clear()
    site.asked.clear()
    running = using(site, store)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(running.run, "go", owner="ada"))
        while "refresh_token" not in site.asked:  # noqa: ASYNC110  another thread writes it
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    async with anyio.create_task_group() as group:
        group.start_soon(running.aclose)
        await anyio.wait_all_tasks_blocked()
        site.gives.set()
    async with using(site, store) as running:
        assert (await running.run("go", owner="ada")).output == "done"


async def test_a_token_that_the_server_takes_back_is_refreshed_without_asking(site):
    """It was valid by the clock, and the call is made once."""
    store = MemoryStore()
    await granted(site, store)
    async with using(site, store, then(site.tokens.clear, ToolCall("pay"))) as running:
        assert (await running.run("go", owner="ada")).output == "done"
    assert site.calls == [("pay", "ada")]


@pytest.mark.every_loop
async def test_a_call_of_which_the_token_was_revoked_waits_and_is_made_once(site, tmp_path):
    """Also one that is not to be repeated, since the server did nothing; parallel ones wait for one sign-in."""
    path = tmp_path / "runs.db"
    await granted(site, SqliteStore(path))

    def revoke():
        site.tokens.clear()
        site.refreshes.clear()

    calls = ToolCalls([ToolCall("pay", {}, "c1"), ToolCall("whoami", {}, "c2")])
    async with using(site, SqliteStore(path), then(revoke, calls), limit=2) as running:
        result = await running.run("go", run_id="r", owner="ada")
    assert (result.status, site.calls) == ("waiting", [])
    [question] = result.questions
    redirect = visit(question.about, "ada")
    async with using(site, SqliteStore(path), limit=2) as running:
        result = await running.resume("r", owner="ada", answer=redirect)
        while result.status == "waiting":  # the call that did not ask came first
            result = await running.resume("r", owner="ada", answer=redirect)
        assert [each.content for each in results(running)] == ["pay for ada", "whoami for ada"]
    assert sorted(site.calls) == [("pay", "ada"), ("whoami", "ada")]
    assert site.asked.count("authorization_code") == 2


@pytest.mark.every_loop
async def test_access_that_ends_while_a_call_is_held_is_asked_for_by_the_run_that_continues(site):
    """The call waits for an answer, and is refused when it has it: then the run waits for the next sign-in."""
    store = MemoryStore()
    await granted(site, store)
    site.asks = "visit"
    async with using(site, store, ToolCall("pay")) as running:
        await running.run("go", run_id="r", owner="ada")
        site.tokens.clear()
        site.refreshes.clear()
        result = await running.resume("r", owner="ada", answer=True)
        assert result.pending.about.startswith(f"{site.url}/authorize?")
        result = await running.resume("r", owner="ada", answer=visit(result.pending.about, "ada"))
        assert (result.output, results(running)[0].content) == ("done", "pay for ada")
    assert site.calls == [("pay", "ada")]


@pytest.mark.every_loop
async def test_an_answer_of_which_the_token_was_taken_back_is_sent_with_another_one(site):
    """The server, which waits for it in the middle of a call, gets it."""
    store = MemoryStore()
    await granted(site, store)
    site.asks = "form"
    async with using(site, store, ToolCall("pay")) as running:
        await running.run("go", run_id="r", owner="ada")
        site.tokens.clear()
        result = await running.resume("r", owner="ada", answer={})
        assert (result.output, results(running)[0].content) == ("done", "pay for ada")
    assert site.calls == [("pay", "ada")]


async def test_a_scope_that_a_call_needs_besides_is_granted_besides(site):
    """What was granted before is asked for again, and the call is made once."""
    store = MemoryStore()
    await granted(site, store, scopes=["read"])
    site.scope = "pay"
    async with using(site, store, ToolCall("pay"), scopes=["read"]) as running:
        result = await running.run("go", run_id="r", owner="ada")
        assert "scope=read+pay" in result.pending.about
        result = await running.resume("r", owner="ada", answer=visit(result.pending.about, "ada"))
        assert (result.output, results(running)[0].content) == ("done", "pay for ada")
    assert site.calls == [("pay", "ada")]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_refuses_the_token_that_it_gave_is_no_endless_loop(site, status):
    """The owner is asked once in an execution of the run, which then ends."""
    async with using(site, MemoryStore()) as running:
        result = await running.run("go", run_id="r")
        site.fails["/mcp"] = (status, {}, None)
        with pytest.raises(ToolServerError, match=f"'site' at 127[.]0[.]0[.]1 answered {status}") as caught:
            await running.resume("r", answer=visit(result.pending.about, "ada"))
    assert (type(caught.value), caught.value.status) == (ToolServerError, status)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda url: url.replace("127.0.0.1:8421", "evil.example"),
            "another place than http://127.0.0.1:8421/callback",
        ),
        (lambda url: url.replace("8421", "8421@evil.example"), "another place than http://127.0.0.1:8421/callback"),
        (lambda url: url.replace("/callback", "/elsewhere"), "another place than http://127.0.0.1:8421/callback"),
        (lambda url: url.partition("&state=")[0], "its state is another one"),
        (lambda url: url.partition("&state=")[0] + "&state=ä", "its state is another one"),
        (lambda _: "https://127.0.0.1:99999999/", "another place than"),
        (lambda _: "http://[/?code=1", "Invalid IPv6 URL"),
        (lambda _: "yes", "give the whole address"),
    ],
)
async def test_a_redirect_to_another_place_or_of_another_sign_in_is_refused(site, spoil, says, tmp_path):
    """The run goes on waiting; a process that does not know the question yet asks it again. The right answer still counts."""
    path = tmp_path / "runs.db"
    async with using(site, SqliteStore(path)) as asking:
        result = await asking.run("go", run_id="r")
        redirect = visit(result.pending.about, "ada")
        wrong = spoil(redirect)
        with pytest.raises(AnswerError, match=says) as caught:
            asking.last.answer(wrong)
        assert not any(each in str(caught.value) for each in site.codes)
    async with using(site, SqliteStore(path)) as other:
        again = await other.resume("r", answer=wrong)
        assert (again.status, again.pending.about) == ("waiting", result.pending.about)
        assert "authorization_code" not in site.asked
        assert (await other.resume("r", answer=redirect)).output == "done"


@pytest.mark.parametrize("no", [lambda about: visit(about, "nobody"), lambda about: Deny("not mine")])
async def test_an_owner_who_says_no_is_asked_again_when_the_run_is_resumed(site, no):
    """The run ends with an error that says so."""
    async with using(site, MemoryStore()) as asking:
        first = await asking.run("go", run_id="r")
        with pytest.raises(ToolServerError, match=r"'site' was not granted access \(access_denied\); resume the run"):
            await asking.resume("r", answer=no(first.pending.about))
        second = await asking.resume("r")
        assert second.pending.about != first.pending.about
        assert (await asking.resume("r", answer=visit(second.pending.about, "ada"))).output == "done"


async def test_no_token_is_in_an_error_a_log_a_representation_or_a_question(site, caplog):
    """Even though the server repeats what it was sent, and answers with what is no answer."""
    caplog.set_level(logging.DEBUG)
    store, shown = MemoryStore(), []
    answers = [
        ("/register", (400, {}, {"error": "invalid_client_metadata", "client_secret": "secret-herring"})),
        ("/register", (201, {}, {"client_secret": "secret-herring"})),
        ("/oauth/token", (400, {}, {"error": "access-herring"})),
        ("/oauth/token", (200, {}, {"access_token": "access-herring", "token_type": "herring", "refresh_token": 1})),
        ("/oauth/token", (500, {}, {"access_token": "access-herring"})),
        ("", ()),
    ]
    async with using(site, store) as running:
        for path, answer in answers:
            site.fails = {path: answer}
            redirect = None
            with suppress(ToolServerError):
                result = await (
                    running.resume("r", owner="ada") if running.last else running.run("go", run_id="r", owner="ada")
                )
                shown += [result.pending.question, repr(result), repr(result.pending)]
                redirect = visit(result.pending.about, "ada")
            if redirect:
                try:
                    await running.resume("r", owner="ada", answer=redirect)
                except ToolServerError as error:
                    shown += ["".join(traceback.format_exception(error)), repr(error)]
        assert running.last.output == "done"
        [connection] = running.tool_servers[0]._connections.values()
        access = connection._access
        shown += [repr(running.tool_servers), repr(access), repr((await access._read())[0])]
    text = "".join(shown) + caplog.text
    hidden = [*site.secrets, "herring", *(f"code-{each}" for each in site.codes)]
    assert "secret-" in "".join(hidden)
    assert [each for each in hidden if each in text] == []
    assert "gave no access: 127.0.0.1 answered 400" in text


@pytest.mark.parametrize("path", ["/oauth/token", "/register", "/mcp"])
async def test_a_redirect_to_another_host_is_not_followed(site, path):
    """What was to be sent, such as a code and a token, is sent to nobody else."""
    store = MemoryStore()
    if path == "/mcp":
        await granted(site, store)
    with serving() as other:
        async with using(site, store) as running:
            if path == "/oauth/token":
                result = await running.run("go", run_id="r", owner="ada")
            site.fails[path] = (307, {"Location": f"{other.url}{path}"}, None)
            with pytest.raises(ToolServerError, match=r"redirects to 127\.0\.0\.1|answered 307"):
                await (
                    running.resume("r", owner="ada", answer=visit(result.pending.about, "ada"))
                    if path == "/oauth/token"
                    else running.run("go", owner="ada")
                )
        assert other.asked == []


async def test_an_agent_that_was_registered_by_hand_does_not_register(site):
    """It shows its id and its secret, which no representation has."""
    site.clients["mine"] = {"client_secret": "swordfish", "redirect_uris": ["https://example.org/back"]}
    options = {"redirect_uri": "https://example.org/back", "client_id": "mine", "client_secret": "swordfish"}
    assert "swordfish" not in repr(OAuth(**options))
    await granted(site, MemoryStore(), **options)
    assert "/register" not in site.asked


async def test_a_registration_that_the_server_has_forgotten_is_made_anew(site):
    """The run ends, and asks again when it is resumed."""
    async with using(site, MemoryStore()) as running:
        first = await running.run("go", run_id="r")
        redirect = visit(first.pending.about, "ada")
        site.clients.clear()
        with pytest.raises(ToolServerError, match="answered 401, invalid_client"):
            await running.resume("r", answer=redirect)
        second = await running.resume("r")
        assert (await running.resume("r", answer=visit(second.pending.about, "ada"))).output == "done"


async def test_a_run_is_executed_again_without_a_sign_in(site):
    """The list of tools and the results are in its journal."""
    store = MemoryStore()
    async with using(site, store, ToolCall("whoami"), "done", "done") as running:
        result = await running.run("go", run_id="r")
        await running.resume("r", answer=visit(result.pending.about, "ada"))
        site.asked.clear()
        assert (await running.rerun("r")).output == "done"
    assert site.asked == []


class Broken(MemoryStore):
    """A store of which grants cannot be read while it is broken."""

    is_broken = False

    async def get(self, key):
        if self.is_broken and key[0] == "grants":
            raise StoreError("the disk is gone")
        return await super().get(key)


@pytest.mark.every_loop
async def test_a_store_that_fails_is_no_fault_of_the_server(site):
    """The error is that of the store, and the connection is used further, though the server could not be told what was given up."""
    store = Broken()
    await granted(site, store)
    site.asks = "form"
    whoami = ToolCall("whoami")

    def switch():
        store.is_broken = not store.is_broken

    async with using(site, store, ToolCall("pay"), then(switch, whoami), then(switch, whoami)) as running:
        await running.run("go", run_id="r", owner="ada")  # a call is held
        [before] = running.tool_servers[0]._connections.values()
        switch()
        await running.tool_servers[0]._calls.aclose()
        await anyio.wait_all_tasks_blocked()
        assert before.is_usable
        with pytest.raises(StoreError, match="the disk is gone"):
            await using(site, store).run("go", owner="ada")
        switch()
        result = await running.resume("r", owner="ada", answer={})
        said = [each.content for each in results(running)]
    assert result.output == "done"
    assert said == [
        "Error: this call was broken off, and nobody knows whether it took effect",
        "Error: StoreError: the disk is gone",
        "whoami for ada",
    ]


@pytest.mark.parametrize("fault", ["slow", "large"])
@pytest.mark.every_loop
async def test_a_server_of_oauth_that_does_not_end_its_answer_is_given_up(site, fault, monkeypatch):
    """It has so many seconds, and so many bytes, and the run ends with an error."""
    if fault == "slow":
        monkeypatch.setattr(auth, "_REPLY", 1.0)
    site.fails["/register"] = (201, {"Content-Length": str(10**9)}, fault)
    says = "gave no access within 1 second" if fault == "slow" else "that violates OAuth"
    async with using(site, MemoryStore()) as running:
        with pytest.raises(ToolServerError, match=says):
            await running.run("go")


async def test_a_server_of_oauth_that_is_busy_does_not_end_the_access(site):
    """A token that cannot be refreshed now, is later; the owner is not asked again."""
    store = MemoryStore()
    await granted(site, store)
    site.tokens.clear()
    site.fails["/oauth/token"] = (429, {}, None)
    async with using(site, store, "done") as running:
        with pytest.raises(ToolServerError, match=r"could not refresh its token: 127\.0\.0\.1 answered 429"):
            await running.run("go", run_id="r", owner="ada")
        site.fails.clear()
        assert (await running.resume("r", owner="ada")).output == "done"


async def test_connections_of_owners_are_few(site, monkeypatch):
    """Those of owners who came long ago are closed, and opened again when they come back."""
    monkeypatch.setattr(module, "_MOST_OWNERS", 2)
    store, owners = MemoryStore(), ["ada", "bob", "cy", "ada"]
    for owner in owners[:3]:
        await granted(site, store, owner)
    async with using(site, store, *[ToolCall("whoami"), "done"] * 4) as running:
        for owner in owners:
            await running.run("go", owner=owner)
        assert len(running.tool_servers[0]._connections) == 2
    assert [user for _, user in site.calls] == owners


async def test_what_a_server_speaks_is_found_out_once_for_all_owners(site):
    """Only the first connection asks for the newest protocol; some servers would be waited for each time."""
    async with using(site, MemoryStore(), "done") as running:
        for owner in ("ada", "bob"):
            result = await running.run("go", run_id=owner, owner=owner)
            site.methods.clear()
            await running.resume(owner, owner=owner, answer=visit(result.pending.about, owner))
            assert ("server/discover" in site.methods) == (owner == "ada")


async def test_outside_of_a_run_nobody_can_be_asked(site):
    """The error says where access can be granted."""
    with pytest.raises(ToolServerError, match="for which a run can ask its owner"):
        await MCPServer.http(f"{site.url}/mcp", auth=OAuth()).list_tools()


def test_settings_of_access_that_make_no_sense_are_refused():
    """Each with what is wrong; no password is shown."""
    for options, says in (
        ({"redirect_uri": "callback"}, "is not an address such as"),
        ({"redirect_uri": "http://example.org/"}, "must begin with https://"),
        ({"client_secret": "swordfish"}, "belongs to a client_id="),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            OAuth(**options)
        assert "swordfish" not in str(caught.value)
    with pytest.raises(TypeError, match=r"scopes is a list of scopes, such as \['read', 'write'\]"):
        OAuth(scopes="read write")
    for url, headers in (("https://me:swordfish@host/mcp", {}), ("https://host/mcp", {"authorization": "swordfish"})):
        with pytest.raises(ValueError, match="leave one of them out") as caught:
            MCPServer.http(url, headers=headers, auth=OAuth())
        assert "swordfish" not in str(caught.value)


def test_a_grant_of_an_older_store_keeps_its_pending_sign_in():
    """Older stores name it `visit`."""
    stored = '{"visit":{"address":"https://example.org/authorize","state":"s","verifier":"v"},"busy":0}'
    grant = auth.Grant.model_validate_json(stored)
    assert grant.sign_in == auth.SignIn(address="https://example.org/authorize", state="s", verifier="v")
    assert auth.Grant.model_validate_json(grant.model_dump_json(exclude_none=True)) == grant
