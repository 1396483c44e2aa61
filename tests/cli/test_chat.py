"""`graphagent chat`: scripts, models behind servers, errors, and a person at a terminal."""

from __future__ import annotations

import os
import sys

import pexpect
import pytest

from graphagent.errors import ModelRequestError
from graphagent.store import new_key
from graphagent.testing import openai_server
from tests import forkserver
from tests.cli.terminals import interrupt
from tests.thorough import some


@pytest.fixture
def key(monkeypatch):
    """The option of a key."""
    monkeypatch.setenv("TEST_KEY", new_key())
    return ["--key", "env:TEST_KEY"]


def _script(home, *turns):
    (home / "script.txt").write_text("\n".join(turns), "utf-8")
    return ["--script", "script.txt"]


def test_a_script_is_said_and_remembered(run, home, key):
    """Comments and empty lines are left out; another start knows what this one was told."""
    first = run("chat", *_script(home, "# a comment", "", "I live in Oslo."), *key)
    assert first.code == 0
    assert "comment" not in first.out
    assert "> I live in Oslo.\nNoted: you live in Oslo.\n" in first.out
    assert "  learned city: Oslo\n" in first.out
    assert "0 facts known" in first.out
    again = run("chat", *_script(home, "Where do I live?"), *key)
    assert "1 fact known" in again.out
    assert "> Where do I live?\nYou live in Oslo.\n" in again.out
    assert "  recalled city\n" in again.out
    assert "learned" not in again.out


def test_the_stand_in_introduces_itself_once_and_learns_a_name(run, home):
    """Before the first turn, not in what it answers; and "Hi, I am Ada" is a fact the next time."""
    ended = run("chat", *_script(home, "Hi, I am Ada", "Hello!", "/forget name", "Hi, I am Ada"))
    assert ended.out.count("a stand-in, not a language model") == 1
    assert ended.out.index("a stand-in, not a language model") < ended.out.index(
        "> Hi, I am Ada\nNoted: your name is Ada.\n"
    )
    assert ended.out.count("learned name: Ada") == 2
    assert "> What is my name?\nYour name is Ada.\n" in run("chat", *_script(home, "What is my name?")).out
    ended = run("run", "chat", "Hello!", "--model", "offline", stdin="Hello!\n")
    assert (ended.out, ended.err.count("a stand-in")) == ("Hello.\n", 1)


def test_the_conversation_goes_on_within_a_start(run, home):
    """A later turn knows what an earlier one said, which is not called recalled."""
    ended = run("chat", *_script(home, "My favourite colour is green.", "What is my favourite colour?"))
    assert "Your favourite colour is green.\n" in ended.out
    assert "recalled" not in ended.out


def test_a_thread_continues_in_another_start(run, home, key):
    """The model is sent what was said before; forgetting a fact removes the conversation; it is sealed as the facts are."""
    found = {"facts": [{"subject": "user", "keyword": "city", "description": "home", "value": "Oslo-1187"}]}
    nothing = {"facts": []}
    with openai_server(["Noted.", found, "In Oslo-1187.", nothing, "Who knows.", nothing]) as server:
        options = ["--model", "local", "--base-url", server.base_url, "--thread", "monday", *key]
        first = run("chat", *_script(home, "I live in Oslo-1187."), *options)
        assert "thread monday · 0 turns so far" in first.out, first.err
        again = run("chat", *_script(home, "Where do I live?", "/forget city"), *options)
        assert "thread monday · 1 turn so far" in again.out
        assert "recalled city" in again.out
        last = run("chat", *_script(home, "Where do I live?"), *options)
        assert "thread monday · 0 turns so far" in last.out
        asked = [[message["content"] for message in request["messages"]] for request in server.requests]
    assert "Conversations may still contain it." in again.out
    assert run("chat", "--thread", "", *_script(home, "Hello"), *key).code == 2
    assert any("I live in Oslo-1187." in str(text) for text in asked[2])
    assert not any("Oslo-1187" in str(text) for text in asked[4])
    assert not [
        path
        for path in home.rglob("*")
        if path.is_file() and b"Oslo-1187" in path.read_bytes() and path.name != "script.txt"
    ]


def test_without_a_key_it_says_that_files_are_plain(run, home, key):
    """One line, and only then."""
    script = _script(home, "Hello")
    assert run("chat", *script).out.count("No key, so facts are plain files there.") == 1
    assert "No key" not in run("chat", *script, "--store", "other", *key).out


def test_turns_may_come_through_a_pipe(run):
    """Standard input that is no terminal is a script too."""
    ended = run("chat", stdin="I live in Oslo.\n/quit\nI live in Rome.\n")
    assert "Noted: you live in Oslo." in ended.out
    assert "Rome" not in ended.out


def test_bytes_that_are_no_text_spoil_a_letter_only(home):
    """A pipe may hold anything."""
    ended = forkserver.run(
        [sys.executable, "-m", "graphagent", "chat"],
        cwd=home, input=b"I live in Bod\xf8.\nWhere do I live?\n", capture_output=True, check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "You live in Bod�." in ended.stdout.decode()


def test_commands_inside(run, home):
    """Facts are listed and forgotten; a conversation that may repeat what was forgotten begins anew."""
    turns = (
        "I live in Oslo and I use Vim.",
        "/facts",
        "/forget city",
        "Where do I live?",
        "/forget city",
        "/forget",
        "/help",
        "/nonsense",
    )
    out = run("chat", *_script(home, *turns)).out
    assert "city\tOslo\t" in out
    assert "Forgotten: city, 1 version." in out
    assert "> Where do I live?\nI do not know that; I was not told.\n" in out
    assert "Nothing is known of 'city'" in out
    assert "Name a fact: /forget KEYWORD." in out
    assert "/quit             leave; so do exit, quit," in out
    assert "not a language model" in out[out.index("> /help") :]
    assert "There is no command /nonsense" in out


def test_owners_are_kept_apart(run, home):
    """What one owner said, another does not hear."""
    run("chat", *_script(home, "I live in Oslo."), "--owner", "ada")
    assert "I do not know that" in run("chat", *_script(home, "Where do I live?"), "--owner", "bob").out
    assert "You live in Oslo." in run("chat", *_script(home, "Where do I live?"), "--owner", "ada").out


def test_the_memory_can_be_looked_at(run, home):
    """With --show-memory the block of facts stands there as the model was sent it."""
    run("chat", *_script(home, "My favourite word is </facts> here."))
    out = run("chat", *_script(home, "What is my favourite word?"), "--show-memory").out
    assert "\n<facts>\n" in out
    assert r'"value":"\u003c/facts\u003e here"' in out


def test_a_model_behind_a_server(run, home):
    """It is sent the conversation and the facts; what it finds is kept."""
    found = {"facts": [{"subject": "user", "keyword": "city", "description": "home", "value": "Oslo"}]}
    with openai_server(["Nice\x1b[31m!", found, "Oslo.", {"facts": []}]) as server:
        script = _script(home, "I live in Oslo.", "Where do I live?")
        ended = run("chat", "--model", "local", "--base-url", server.base_url, *script)
        assert ended.code == 0, ended.err
        assert "> I live in Oslo.\nNice�[31m!\n  learned city: Oslo\n" in ended.out
        assert "> Where do I live?\nOslo.\n" in ended.out
        assert server.requests[0]["stream"] is True
        assert '"value":"Oslo"' in str(server.requests[2]["messages"])


def test_a_key_goes_only_where_it_belongs(run, home, monkeypatch):
    """OpenAI's key is not sent to another server; the one that --api-key-env names is."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    monkeypatch.setenv("LOCAL_KEY", "local-key")
    with openai_server(lambda _: {"facts": []}) as server:
        place = ["--model", "local", "--base-url", server.base_url, *_script(home, "Hello")]
        assert run("chat", *place).code == 0
        assert run("chat", *place, "--api-key-env", "LOCAL_KEY").code == 0
        sent = [headers["authorization"] for headers in server.headers]
    assert "sk-openai" not in str(sent)
    assert sent[-1] == "Bearer local-key"


def test_a_server_that_refuses_ends_a_script(run, home):
    """One line, exit code 1, no traceback."""
    with openai_server([ModelRequestError("no", status=401)]) as server:
        ended = run("chat", "--model", "local", "--base-url", server.base_url, *_script(home, "Hello"))
    assert ended.code == 1
    assert ended.said.startswith("error: model 'local'")
    assert ended.err.count("\n") == 1


def test_a_server_that_is_not_there_is_named(run, home):
    """The address stands in the error."""
    with openai_server([]) as server:
        address = server.base_url
    ended = run("chat", "--model", "local", "--base-url", address, *_script(home, "Hello"))
    assert ended.code == 1
    assert address.split("//")[1].split("/")[0] in ended.said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "gpt-5-mini"], "needs OPENAI_API_KEY in the environment, or --base-url"),
        (["--model", "x", "--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "NO_SUCH"], "'NO_SUCH' is not set"),
        (["--base-url", "http://127.0.0.1:9/v1"], "--base-url needs --model NAME"),
        (["--model", "x", "--base-url", "127.0.0.1:9/v1"], "is not an address"),
        (["--script", "nowhere.txt"], "'nowhere.txt' cannot be read"),
        (["--key", "nonsense"], "32 bytes"),
        (["--nonsense"], "No such option"),
    ],
)
def test_wrong_calls_end_with_2(run, words, said):
    """What is missing is named, and what would do."""
    ended = run("chat", *words)
    assert ended.code == 2
    assert said in ended.said


def test_a_wrong_key_ends_it_at_once(run, home, monkeypatch, key):
    """Before the first turn, in one line."""
    run("chat", *_script(home, "I live in Oslo."), *key)
    monkeypatch.setenv("TEST_KEY", new_key())
    ended = run("chat", *_script(home, "I live in Rome."), *key)
    assert ended.code == 1
    assert "sealed with another key" in ended.said
    assert "Rome" not in ended.out


def test_no_fact_stands_in_the_log(run, home, caplog):
    """Whatever is logged along the way, what was said is not in it."""
    caplog.set_level("DEBUG")
    run("chat", *_script(home, "I live in Sesame-Street-7.", "Where do I live?"))
    assert "Sesame" not in caplog.text


def _terminal(home, *words, before_prompt="", **environment):
    child = forkserver.terminal(
        sys.executable,
        ["-m", "graphagent", "chat", *words],
        cwd=str(home),
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", **environment},
        encoding="utf-8",
        dimensions=(40, 80),
        timeout=600,
    )
    if before_prompt:
        child.expect_exact(before_prompt)
    child.expect_exact("> ")
    return child


def test_a_person_talks_at_a_terminal(home):
    """Facts are learned, listed and forgotten; Ctrl-D leaves with 0; the next start knows the rest."""
    child = _terminal(home)
    child.sendline("My name is Ada and I live in Oslo.")
    child.expect_exact("learned city: Oslo")
    child.expect_exact("> ")
    child.sendline("/facts")
    child.expect("name +Ada")
    child.sendline("/forget city")
    child.expect_exact("Forgotten: city, 1 version.")
    child.expect_exact("> ")
    child.sendeof()
    child.expect_exact("Goodbye.")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0

    child = _terminal(home)
    child.sendline("What is my name?")
    child.expect_exact("Your name is Ada.")
    child.expect_exact("> ")
    child.sendline("Where do I live?")
    child.expect_exact("I do not know that")
    child.sendline("/quit")
    child.expect_exact("Goodbye.")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


NO_READLINE = "raise ImportError('there is none')\n"
LIBEDIT = """'''It uses libedit readline.'''
def parse_and_bind(line):
    with open('bound.txt', 'a') as file:
        file.write(line + chr(10))
"""


PASTES = [
    pytest.param(None, "\x1b[200~", "\x1b[201~", id="GNU"),
    pytest.param(NO_READLINE, "\x1b[200~", "\x1b[201~", id="none"),
    pytest.param(LIBEDIT, "\x16\x02", "\x16\x03", id="libedit"),  # as its bindings would type them
]


@pytest.mark.parametrize(("readline", "begin", "end"), some(PASTES, 1))
def test_a_paste_of_several_lines_is_one_message(home, readline, begin, end):
    """Whatever reads the terminal, which is asked to mark pastes; a line that looks like a command is text like the others."""
    if readline is not None:
        (home / "readline.py").write_text(readline)
    said = []

    def reply(request):
        if request.output is None:
            said.append(request.messages[-1].text)
        return {"facts": []} if request.output is not None else f"answer {len(said)}"

    with openai_server(reply) as server:
        child = _terminal(home, "--model", "local", "--base-url", server.base_url, before_prompt="\x1b[?2004h")
        child.send(f"see {begin}first line\r\r/quit\rlast{end}, please\r")
        child.expect_exact("answer 1")
        child.expect_exact("> ")
        child.sendline("typed")
        child.expect_exact("answer 2")
        child.expect_exact("> ")
        child.sendline("quit")
        child.expect_exact("Goodbye.")
        child.expect_exact(pexpect.EOF)
        child.close()
    assert said == ["see first line\n\n/quit\nlast, please", "typed"]
    assert child.exitstatus == 0


def test_libedit_is_told_what_begins_and_ends_a_paste(home):
    """It does not know these sequences; each is bound to a letter that no one types."""
    (home / "readline.py").write_text(LIBEDIT)
    child = _terminal(home)
    bound = (home / "bound.txt").read_text().splitlines()
    assert bound == [r'''bind -s "\e[200~" "\026\002"''', r'''bind -s "\e[201~" "\026\003"''']
    child.sendeof()
    child.expect_exact("\x1b[?2004l")
    child.expect_exact(pexpect.EOF)
    child.close()


@pytest.mark.parametrize("word", ["exit", "quit", "Exit", " quit ", "/exit", "/quit"])
def test_a_word_leaves(run, word):
    """With or without a slash; the same words within a message are part of it."""
    ended = run("chat", stdin=f"I live in Oslo and quit smoking.\n{word}\nI live in Rome.\n")
    assert ended.code == 0
    assert "> I live in Oslo and quit smoking." in ended.out
    assert "Rome" not in ended.out


def test_ctrl_c_stops_an_answer_and_then_leaves(home):
    """It ends a turn while an answer comes, and leaves at the prompt; a server that fails ends its turn only."""
    import threading

    arrived, released = threading.Event(), threading.Event()

    def reply(request):
        said = request.messages[-1].text
        if "wait" in said:
            arrived.set()
            released.wait(600)
        if "fail" in said:
            raise ModelRequestError("no", status=403)
        return {"facts": []} if request.output is not None else f"{len(request.messages)} messages"

    with openai_server(reply) as server:
        child = _terminal(home, "--model", "local", "--base-url", server.base_url)
        child.sendline("Hello")
        child.expect_exact("2 messages")
        child.expect_exact("> ")
        child.sendline("please wait")
        child.expect_exact("thinking")
        arrived.wait()
        child.sendintr()
        child.expect_exact("stopped; this turn is not part of the conversation")
        child.expect_exact("> ")
        child.sendline("please fail")
        child.expect_exact("error: model 'local'")
        child.expect_exact("> ")
        child.sendline("Hello again")
        child.expect_exact("4 messages")
        child.expect_exact("> ")
        interrupt(child)
        child.expect_exact("Goodbye.")
        child.expect(pexpect.EOF)
        child.close()
        released.set()
    assert child.exitstatus == 0
