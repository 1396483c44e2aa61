"""`graphagent runs`: what is looked at without its agent."""

from __future__ import annotations

import json
import os
import re
import runpy
import sys

import anyio
import pexpect
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel
from graphagent.llm import ToolCall, ToolCalls, tool
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import MessageStep
from graphagent.nodes import llm_request
from graphagent.store import SqliteStore, new_key
from graphagent.testing import ScriptedModel, openai_server
from graphagent_strategies import single_run
from tests import forkserver
from tests.thorough import some

STORE = ["--store", "runs.db"]


def _json(ended):
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_runs_are_listed(run, begun):
    """The newest first, in columns; a run of a sub-agent stands below the one that it is a part of."""
    begun("agent", "mail-1", "the party")
    begun("letters", "post-1", "write to ada")
    heads, *rows = (line.split("\t") for line in run("runs", "list", *STORE).out.splitlines())
    assert heads == ["run", "task", "status", "strategy", "started", "turns", "tokens", "cost"]
    assert [row[:4] for row in rows] == [
        ["post-1", "write to ada", "waiting", "letters"],
        [rows[1][0], "read", "done", "reading"],
        ["mail-1", "the party", "waiting", "mail"],
    ]
    assert rows[1][0].startswith("post-1/reader")
    assert rows[0][5:] == ["2", "3,060", "0.0036"]
    assert rows[2][5:] == ["", "", ""]


def test_a_list_is_narrowed(run, begun):
    """By status, by number, by owner; what is not shown is counted, and who else has runs is said."""
    begun("agent", "mail-1")
    begun("agent", "mail-2")
    begun("agent", "secret", owner="ada")
    run("runs", "answer", "mail-1", "yes", "--agent", "program.py:agent", *STORE)

    def listed(*options):
        return [each["run_id"] for each in _json(run("runs", "list", "--json", *STORE, *options))]

    assert listed() == ["mail-2", "mail-1"]
    assert listed("--status", "done") == ["mail-1"]
    assert listed("--status", "done", "--status", "waiting", "--limit", "1") == ["mail-2"]
    assert listed("--owner", "ada") == ["secret"]
    assert listed("--all-owners") == ["secret", "mail-2", "mail-1"]
    everybody = run("runs", "list", "--all-owners", *STORE)
    assert [line.split("\t")[-1] for line in everybody.out.splitlines()] == ["owner", "ada", "", ""]
    assert "--all-owners" not in everybody.err
    whose = "Runs with an owner are listed with --owner NAME or --all-owners."
    for words in ("list", "list --status failed", "threads"):
        assert whose in run("runs", *words.split(), *STORE).err
    assert whose not in run("runs", "list", "--owner", "ada", *STORE).err
    assert "1 more; --limit shows them." in run("runs", "list", "--limit", "1", *STORE).err
    assert "There are no such runs here, but 2 others." in run("runs", "list", "--status", "failed", *STORE).err
    assert "There are no runs of owner 'bob' here. Owners with runs: 'ada'." in run(
        "runs", "list", "--owner", "bob", *STORE
    ).err.replace("\n", " ")
    refused = run("runs", "list", "--status", "asleep", *STORE)
    assert refused.code == 2
    assert "'asleep' is not a status; there are queued, running," in refused.said
    assert refused.said.count("damaged") == 1


def test_sizes_are_told(run, begun):
    """For each run, and together."""
    begun("agent", "mail-1")
    ended = run("runs", "list", "--size", *STORE)
    assert re.search(r"\t[\d.,]+ (bytes|kB)$", ended.out.splitlines()[1])
    assert re.match(r"All together: .* in 1 run\.", ended.err)
    [told] = _json(run("runs", "list", "--size", "--json", *STORE))
    assert told["size"]["entries"] == 3
    assert told["size"]["bytes"] > 500


def test_the_store_is_the_one_that_is_named(run, begun, home):
    """Else that of $GRAPHAGENT_HOME; none is made by looking."""
    refused = run("runs", "list")
    assert refused.code == 2
    assert "there is no store" in refused.said
    assert "name the file of the runs, or the folder that has it: --store PATH" in refused.said
    assert not (home / "home").exists()
    begun("agent", "mail-1")
    (home / "home").mkdir()
    os.rename("runs.db", home / "home" / "runs.db")
    assert "mail-1" in run("runs", "list").out


def test_a_run_is_named_by_its_beginning(run, begun):
    """Where only one has it; none means the newest."""
    begun("agent", "mail-1")
    begun("letters", "post-1")
    assert _json(run("runs", "show", "ma", "--json", *STORE))["run_id"] == "mail-1"
    assert _json(run("runs", "show", "post", "--json", *STORE))["run_id"] == "post-1", "and not its part"
    assert _json(run("runs", "show", "--json", *STORE))["run_id"] == "post-1"
    begun("agent", "mail-2")
    refused = run("runs", "show", "ma", *STORE)
    assert refused.code == 2
    assert "'ma' is the beginning of 2 runs: mail-2, mail-1" in refused.said
    unknown = run("runs", "show", "x", *STORE)
    assert unknown.code == 1
    assert unknown.err == (
        "error: there is no run 'x' in the store; `graphagent runs list` lists the runs. A run that began with an owner= is found with "
        "the same owner=\n"
    )


def test_a_run_is_shown(run, begun):
    """What it came to, what it asks and how to answer, where it stands in its graph, its journal, what was said."""
    begun("agent", "mail-1", "the party")
    ended = run("runs", "show", "mail-1", *STORE)
    shown = [line.rstrip() for line in ended.out.splitlines()]
    assert shown[:4] == ["run mail-1", "  status    waiting for an answer", "  at        ask_human", "  strategy  mail"]
    assert "  ask_human:2 Send it?" in shown
    assert "            about: Dear all, about the party." in shown
    assert "answer with: graphagent runs answer mail-1 ANSWER --agent MODULE:AGENT --store runs.db" in ended.err
    graph = shown[shown.index("graph") + 1 : shown.index("journal") - 1]
    assert [line.split()[:2] for line in graph] == [
        ["✓", "draft"],
        [">", "ask_human"],
        ["send", "bool"],
        ["drop", "bool"],
    ]
    assert "2\tDear all, about the party. -> ask_human\tfinished\tdraft" in ended.out
    told = ["transcript", "Task:", "    the party", "", "Waiting:", "    it waits for an answer: Send it?"]
    assert shown[-6:] == told
    run("runs", "answer", "mail-1", "yes", "--agent", "program.py:agent", *STORE)
    shown = run("runs", "show", "mail-1", *STORE).out
    assert "  status    done\n" in shown
    assert "Final answer:\n    sent\n" in shown


def test_a_run_is_shown_to_programs(run, begun):
    """Everything as JSON; the entries if they are asked for."""
    begun("letters", "post-1", "write")
    told = _json(run("runs", "show", "post-1", "--json", *STORE))
    assert (told["status"], told["at"], told["turns"], told["cost"]) == ("waiting", ["execute_tools"], 2, "0.0036")
    [question] = told["questions"]
    assert (question["id"], question["kind"], question["about"]["arguments"]) == ("c2", "approval", {"to": "ada"})
    assert [(each["node"], each["ended"], each["here"]) for each in told["graph"]] == [
        ("llm_request", 2, False), ("execute_tools", 1, True),
    ]  # fmt: skip
    assert [part["status"] for part in told["parts"]] == ["done"]
    assert [step["kind"] for step in told["steps"]] == ["task", "action", "action"]
    assert "entries" not in told
    entries = _json(run("runs", "show", "post-1", "--json", "--entries", *STORE))["entries"]
    assert [each["number"] for each in entries] == list(range(1, len(entries) + 1))
    assert (entries[0]["type"], entries[-1]["type"]) == ("started", "stopped")


def test_long_journals_are_cut(run, begun):
    """The last entries are shown, unless all are asked for."""
    begun("letters", "post-1")
    run("runs", "answer", "post-1", "yes", "--agent", "program.py:letters", *STORE)
    ended = run("runs", "show", "post-1", *STORE)
    assert re.search(r"The last 12 of \d+; --entries shows all\.", ended.err)
    assert "\n1\t" not in ended.out
    whole = run("runs", "show", "post-1", "--entries", *STORE)
    assert "\n1\t" in whole.out
    assert "--entries shows all" not in whole.err


@tool
async def look(what: str) -> str:
    """Look at something."""
    return f"{what} looks fine\tand \u202eodd"


def test_a_prompt_is_exactly_what_the_server_was_sent(run, home):
    """The messages of each request, as a real server received them, from the journal alone."""

    async def main():
        replies = [
            ToolCall("look", {"what": "a"}, id="1"),
            ToolCalls([ToolCall("look", {"what": "ü"}, id="2")], "Hm."),
            "ok",
        ]
        with openai_server(replies) as server:
            async with (
                SqliteStore(home / "runs.db") as store,
                OpenAIModel("m", base_url=server.base_url, api_key="k") as model,
            ):
                agent = Agent(
                    single_run(),
                    model=model,
                    tools=[look],
                    store=store,
                    system_prompt="Be kind.\nAlways, \x1b[2J please.",
                )
                await agent.run("Look \u2028 around", run_id="a")
            return [request["messages"] for request in server.requests]

    sent = anyio.run(main)
    assert len(sent) == 3
    for number, messages in enumerate(sent, start=1):
        assert _json(run("runs", "show", "a", "--prompt", number, "--json", *STORE)) == messages
    plain = run("runs", "show", "a", "--prompt", "3", *STORE).out
    assert "── system\nBe kind.\nAlways, \x1b[2J please.\n" in plain, "into a pipe, byte for byte"
    assert '── assistant\nHm.\n[call 2: look({"what": "ü"})]\n' in plain
    assert "── tool\nü looks fine\tand \u202eodd\n[result of call 2]\n" in plain


def test_steps_that_are_none_are_refused(run, begun):
    """The error says which there are."""
    begun("letters", "post-1")
    unknown = run("runs", "show", "post-1", "--prompt", "7", *STORE)
    assert unknown.code == 1
    assert unknown.err == "error: run 'post-1' has no model turn 7; it has: 1, 2\n"
    wrong = run("runs", "show", "post-1", "--prompt", "first", *STORE)
    assert wrong.code == 2
    assert "'first' is not a step" in wrong.said


def test_turns_of_branches_are_told_apart(run, home):
    """Where several have the same number, the error says how to choose."""
    first, second = llm_request().named("first"), llm_request().named("second")

    @node
    async def both(ctx: Context, said: tuple[str | ToolCalls, str | ToolCalls]) -> str:
        return " ".join(map(str, said))

    async def main():
        async with SqliteStore(home / "runs.db") as store:
            strategy = Strategy("twice", START >> parallel(first, second, transcript="keep") >> both >> END)
            await Agent(strategy, model=ScriptedModel(["one", "two"]), store=store).run("Say it", run_id="a")

    anyio.run(main)
    refused = run("runs", "show", "a", "--prompt", "1", *STORE)
    assert refused.code == 2
    assert "several branches have a model turn 1; choose one: 1:1, 1:2" in refused.said
    assert _json(run("runs", "show", "a", "--prompt", "1:2", "--json", *STORE)) == [
        {"role": "user", "content": "Say it"}
    ]
    assert "there are 2 model turns 1" in run("runs", "show", "a", "--prompt", "1:3", *STORE).said


def test_what_happened_is_replayed(run, begun):
    """Step by step, with what the model was sent if that is asked for; nothing is executed."""
    begun("letters", "post-1", "write to ada")
    plain = run("runs", "replay", "post-1", *STORE).out
    assert 'Called post({"to": "ada"})' in plain
    assert "Be kind." not in plain
    detailed = run("runs", "replay", "--detailed", *STORE).out
    assert "Be kind." in detailed
    assert "The model was sent" in detailed


def test_two_runs_are_compared(run, begun):
    """What they share is counted, and what each did then stands there with its sign."""
    begun("agent", "mail-1", "the party")
    agent = ["--agent", "program.py:agent", *STORE]
    run("runs", "fork", "mail-1", "--before", "ask_human", "--run-id", "mail-2", *agent)
    run("runs", "answer", "mail-1", "yes", *agent)
    run("runs", "answer", "mail-2", "no", *agent)
    ended = run("runs", "diff", "mail-1", "mail-2", *STORE)
    assert ended.err == "2 entries in common.\n- mail-1\n+ mail-2\n"
    assert "-\tsent\t8\tfinished\tsend\n" in ended.out
    assert "+\tdropped\t9\tfinished\tdrop\n" in ended.out
    told = _json(run("runs", "diff", "mail-1", "mail-2", "--json", *STORE))
    assert (told["common"], told["only_a"][-1]["type"], told["only_b"][0]["type"]) == (2, "stopped", "resumed")
    assert run("runs", "diff", "mail-1", "mail-1", *STORE).out == ""


def test_a_sealed_store_needs_its_key(run, begun, monkeypatch):
    """Without it, with another one, and with one for a plain store, the error says what to do."""
    monkeypatch.setenv("TEST_KEY", new_key())
    monkeypatch.setenv("OTHER_KEY", new_key())
    monkeypatch.setenv("SEALED", "1")
    begun("agent", "mail-1", "the party")
    refused = run("runs", "list", *STORE)
    assert refused.code == 2
    assert "is sealed; say where its key is" in refused.said
    assert "mail-1\tthe party\twaiting" in run("runs", "list", "--key", "env:TEST_KEY", *STORE).out
    wrong = run("runs", "list", "--key", "env:OTHER_KEY", *STORE)
    assert wrong.code == 1
    assert "another key" in wrong.said
    assert (
        run("runs", "answer", "mail-1", "yes", "--agent", "program.py:agent", "--key", "env:TEST_KEY", *STORE).out
        == "sent\n"
    )
    os.rename("runs.db", "sealed.db")
    begun("agent", "mail-1")
    key = os.environ["TEST_KEY"]
    shown = run("runs", "show", "mail-1", "--key", key, *STORE)
    assert "--store runs.db --key KEY" in shown.err
    assert key not in shown.out + shown.err
    os.remove("runs.db")
    monkeypatch.delenv("SEALED")
    begun("agent", "mail-1")
    refused = run("runs", "list", "--key", "env:TEST_KEY", *STORE)
    assert refused.code == 2
    assert "is plain; leave out --key" in refused.said


def test_what_is_no_store_is_one_clear_line(run, home):
    """A file of something else is refused, and stays as it is."""
    (home / "runs.db").write_text("shopping list")
    ended = run("runs", "list", *STORE)
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert (home / "runs.db").read_text() == "shopping list"


CUSTOM = """
from dataclasses import dataclass
from typing import ClassVar
from graphagent import Agent
from graphagent.llm import Message
from graphagent.memory import Step
from graphagent_strategies import single_run

@dataclass(slots=True)
class Mood(Step):
    kind: ClassVar[str] = "cli-test-mood"
    mood: str
    def to_messages(self):
        return [Message.user(f"I am {self.mood}.")]

agent = Agent(single_run())
"""


def test_steps_of_ones_own_need_the_program(home):
    """Without it the error says so; with --agent they are shown. What only moves runs needs no program."""
    (home / "moods.py").write_text(CUSTOM)
    program = (
        "import anyio, moods\n"
        "from graphagent import Agent\n"
        "from graphagent.memory import RunMemory\n"
        "from graphagent.store import SqliteStore\n"
        "from graphagent.testing import ScriptedModel\n"
        "from graphagent_strategies import single_run\n"
        "async def main():\n"
        "    async with SqliteStore('runs.db') as store:\n"
        "        steps = RunMemory(steps=[moods.Mood('glad')])\n"
        "        await Agent(single_run(), model=ScriptedModel(['hello']), store=store).run('hi', steps=steps)\n"
        "anyio.run(main)\n"
    )
    (home / "begin.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(home), os.environ["PYTHONPATH"]])}

    def command(words):
        return pexpect.run(
            f"{sys.executable} {words}", cwd=str(home), env=environment, encoding="utf-8", withexitstatus=True
        )

    said, code = command("begin.py")
    assert code == 0, said
    said, code = command("-m graphagent runs show --store runs.db")
    assert code == 1
    assert "'cli-test-mood' is not a known kind of step; import the module that defines it first" in " ".join(
        said.split()
    )
    assert "damaged" not in said
    said, code = command("-m graphagent runs show --store runs.db --agent moods.py:agent --prompt 1 --json")
    assert code == 0, said
    assert [each["content"] for each in json.loads(said)] == ["I am glad.", "hi"]
    for words in (
        "export --out runs.jsonl --store runs.db",
        "import runs.jsonl --store new.db",
    ):
        said, code = command(f"-m graphagent runs {words}")
        assert code == 0, said
    said, code = command("-m graphagent runs show --store new.db --agent moods.py:agent --prompt 1 --json")
    assert [each["content"] for each in json.loads(said)] == ["I am glad.", "hi"]


EVIL = "\x1b]0;evil\x07\x1b[2J\u202egnp.exe\x9b31m\u2066"


COMMANDS = [
    "list", "show", "show --entries", "show --json", "show --prompt 1", "show --prompt 1 --json", "replay --detailed",
    "diff a b",
]  # fmt: skip


@pytest.mark.parametrize("words", some(COMMANDS, 3))
def test_text_of_a_run_cannot_control_the_terminal(home, words):
    """Whatever a model, a person or a tool said: no sequence of it reaches the screen."""

    async def main():
        model = ScriptedModel([ToolCall("look", {"what": EVIL}, id="1"), EVIL] * 3)
        async with SqliteStore(home / "runs.db") as store:
            agent = Agent(single_run(), model=model, tools=[look], store=store, system_prompt=EVIL)
            run = agent.start(EVIL, run_id="a")
            run.memory.steps.append(MessageStep(ScriptedModel([EVIL]).answer(model_request()).message))
            await run.finish()
            await agent.run(EVIL, run_id="b")

    anyio.run(main)
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    child = forkserver.terminal(
        f"{sys.executable} -m graphagent runs {words} --store runs.db", cwd=home, env=environment, encoding="utf-8"
    )
    said = child.read()
    assert child.wait() == 0, said
    left = re.sub(r"\x1b\[[\d;]*m", "", said)  # our own bold and dim
    for character in "\x1b\x07\x9b\u202e\u2066":
        assert character not in left
    assert "31m" not in "".join(re.findall(r"\x1b\[[\d;]*m", said))
    if "list" in words or "--json" in words:
        assert "exe" in left


def model_request():
    """A request of no messages."""
    from graphagent.llm import ModelRequest

    return ModelRequest(())


@pytest.mark.one_value("width")
@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal(home, begun, width):
    """No line of them is longer than the terminal is wide; ids that nobody chose are shortened as far as they differ."""
    begun("letters", "", "write to ada, who was at the party, and tell her of all that came to pass there since")
    begun("agent", "", "another task that is long enough not to fit into one line of a terminal of eighty columns")
    for words in ("list --size", "show --entries"):
        child = forkserver.terminal(
            f"{sys.executable} -m graphagent runs {words} --store runs.db",
            cwd=str(home), env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"}, dimensions=(40, width), encoding="utf-8",
        )  # fmt: skip
        shown = re.sub(r"\x1b\[[\d;]*m", "", child.read())
        lines = [line.rstrip("\r") for line in shown.split("\n")]
        start = next(
            number for number, line in enumerate(lines) if line.startswith(("run ", "entry ")) and "  " in line
        )
        table = [line for line in lines[start:] if "  " in line.strip()]
        assert len(table) > 2
        assert all(len(line) <= width for line in table)
        if "list" in words:
            assert all(re.match(r"[0-9a-f]{12,16}  |└ reader|run ", line) for line in table), table


FACTS = """
from graphagent import END, START, Agent, Strategy
from graphagent.memory import AgentMemory, Concept, FileMemoryProvider, Subject
from graphagent.nodes import llm_request, load_facts
from graphagent.testing import ScriptedModel

USER = Subject("user")
agent = Agent(
    Strategy("known", START >> load_facts(Concept("city"), subjects=[USER]) >> llm_request() >> END),
    model=ScriptedModel(["You live there."]),
)
agent.install(AgentMemory, provider=FileMemoryProvider("memory"), agent_name="chat")
"""


def test_facts_are_looked_up_by_the_agent(run, home):
    """A run only refers to them: without the agent they are kept elsewhere, and what was forgotten is gone for both."""
    (home / "known.py").write_text(FACTS)
    run("facts", "set", "city", "Oslo", "--store", "memory")

    async def main():
        async with SqliteStore(home / "runs.db") as store:
            agent = runpy.run_path("known.py")["agent"]
            agent.store = store
            await agent.run("Where do I live?", run_id="a")
            return [message.text for message in agent.model.requests[0].messages]

    sent = anyio.run(main)
    assert "Oslo" in sent[0]
    prompt = ["runs", "show", "a", "--prompt", "1", "--json", *STORE]
    assert [each["content"] for each in _json(run(*prompt, "--agent", "known.py:agent"))] == sent
    alone = run(*prompt).out + run("runs", "show", "a", "--json", "--entries", *STORE).out
    assert "[kept elsewhere]" in alone
    assert "Oslo" not in alone
    assert "Oslo" in run("runs", "replay", "--detailed", "--agent", "known.py:agent", *STORE).out
    run("facts", "forget", "city", "--yes", "--store", "memory")
    forgotten = run("runs", "replay", "--detailed", "--agent", "known.py:agent", *STORE).out
    assert "[forgotten]" in forgotten
    assert "Oslo" not in forgotten


def test_what_waits_is_listed_over_all_owners(run, begun):
    """With the ids that answer it; as JSON, too."""
    begun("agent", "mail-1")
    begun("agent", "mail-2", owner="ada")
    found = _json(run("runs", "questions", "--json", *STORE))
    assert [(each["run_id"], each["owner"], each["kind"]) for each in found] == [
        ("mail-1", "", "question"),
        ("mail-2", "ada", "question"),
    ]
    shown = run("runs", "questions", "--owner", "ada", *STORE).out.splitlines()
    assert shown[0].split("\t") == ["run", "id", "question", "owner", "thread", "since", "deadline"]
    assert shown[1].split("\t")[:4] == ["mail-2", found[1]["id"], found[1]["question"], "ada"]
    assert run("runs", "questions", "--owner", "bob", *STORE).err == "No run of owner 'bob' waits for a person here.\n"
