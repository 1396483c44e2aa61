"""`graphagent runs`: what goes on with runs, in this process and in others."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import pexpect
import pytest
from pydantic import Field

from graphagent.cli.runs._prompt_answers import parts_of, read_answer, read_answers, read_part, wanted
from graphagent.errors import AnswerError
from graphagent.llm import Approve, Deny
from graphagent.run import Question
from tests import forkserver

STORE = ["--store", "runs.db"]
AGENT = ["--agent", "program.py:agent", *STORE]
LETTERS = ["--agent", "program.py:letters", *STORE]
WAITS = ["--agent", "program.py:waits", *STORE]


def _json(ended):
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def _status(run, run_id):
    return _json(run("runs", "show", run_id, "--json", *STORE))


def _effects(home):
    path = home / "effects.log"
    return path.read_text().split("\n")[:-1] if path.exists() else []


def _started(home, *words):
    return forkserver.Popen(
        [sys.executable, "-m", "graphagent", "runs", *words],
        cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _until(true, seconds=600):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


# ---- ends


@pytest.mark.parametrize("agent", [STORE, AGENT])
def test_a_run_is_ended_where_it_is(run, begun, agent):
    """With its agent or without; the reason is shown, and nothing resumes the run."""
    begun("agent", "mail-1")
    for _ in range(2):
        assert run("runs", "end", "mail-1", "--reason", "no longer needed", *agent).err == "Run mail-1: ended.\n"
    assert _json(run("runs", "end", "mail-1", "--json", *agent))["reason"] == "it was ended: no longer needed"
    shown = run("runs", "show", "mail-1", *STORE).out
    assert re.search("status +ended: no longer needed\n", shown)
    resumed = run("runs", "resume", "mail-1", *AGENT)
    assert (resumed.code, "run 'mail-1' is not continued, since it was ended: no longer" in resumed.err) == (1, True)
    assert [each["run_id"] for each in _json(run("runs", "list", "--status", "ended", "--json", *STORE))] == ["mail-1"]


def test_a_run_of_a_sub_agent_is_resumed_with_the_whole(run, begun):
    """By the id that the list shows it is replayed; to resume it, the error names the whole run."""
    begun("letters", "post-1")
    listed = _json(run("runs", "list", "--json", *STORE))
    child = next(each["run_id"] for each in listed if each["parent"])
    assert "I saw: read" in run("runs", "replay", child, *STORE).out
    assert run("runs", "show", child, "--follow", *STORE).code == 0
    ended = run("runs", "resume", child, *LETTERS)
    said = f"error: run '{child}' is a part of run 'post-1', which is continued, forked and ended as a whole: "
    assert (ended.code, ended.err) == (1, f"{said}agent.resume('post-1')\n")


# ---- answers


def test_an_answer_lets_a_run_go_on(run, begun, home):
    """It goes on where it stood: nothing is done twice, and the answer stands on standard output."""
    begun("agent", "mail-1", "the party")
    ended = run("runs", "answer", "mail-1", "yes", *AGENT)
    assert (ended.code, ended.out) == (0, "sent\n")
    assert re.search(r"^Run mail-1: done, \d.*s\.$", ended.err, re.MULTILINE)
    assert _effects(home) == ["drafted", "sent"]
    again = run("runs", "answer", "mail-1", "yes", *AGENT)
    assert again.code == 1
    assert again.err == "error: run 'mail-1' does not wait for an answer: it is done\n"


def test_without_the_agent_an_answer_is_recorded_and_a_worker_continues_the_run(run, begun, home):
    """Nothing is executed here. What does not fit is refused, and who comes second is told."""
    begun("agent", "mail-1")
    assert "asks for yes or no" in run("runs", "answer", "mail-1", "perhaps", *STORE).err
    ended = run("runs", "answer", "mail-1", "yes", "--by", "Ada", *STORE)
    here = "graphagent runs resume mail-1 --agent MODULE:AGENT --store runs.db"
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == f"Run mail-1: queued. A worker continues it, or: {here}\n"
    again = run("runs", "answer", "mail-1", "no", *STORE)
    assert (again.code, again.err) == (1, "error: run 'mail-1' does not wait for an answer: it is queued\n")
    assert _effects(home) == ["drafted"]
    assert run("runs", "resume", "mail-1", *AGENT).out == "sent\n"


def test_without_the_agent_a_run_that_has_stopped_is_left_to_workers(run, begun, home):
    """A run that failed waits for a worker again; one that waits for an answer, or is over, stays as it is."""
    begun("agent", "mail-1")
    (home / "broken").touch()
    begun("fragile", "f-1")
    here = "graphagent runs resume f-1 --agent MODULE:AGENT --store runs.db"
    assert run("runs", "resume", "f-1", *STORE).err == f"Run f-1: queued. A worker continues it, or: {here}\n"
    for word, status in (("resume", "waiting"), ("pause", "waiting"), ("end", "ended"), ("pause", "ended")):
        assert run("runs", word, "mail-1", *STORE).err == f"Run mail-1: {status}.\n"
    assert "is not continued, since it was ended" in run("runs", "resume", "mail-1", *STORE).err


def test_a_wrong_answer_changes_nothing(run, begun, home):
    """The error says what is asked for, and the run still waits."""
    begun("agent", "mail-1")
    before = _status(run, "mail-1")
    ended = run("runs", "answer", "mail-1", "perhaps", *AGENT)
    assert ended.code == 1
    assert ended.err == "error: question 'ask_human:2' asks for yes or no\n"
    assert _status(run, "mail-1") == before
    assert run("runs", "answer", "mail-1", *AGENT).code == 2, "nobody sits there to be asked"
    assert _status(run, "mail-1") == before


def test_whatever_is_asked_can_be_declined(run, begun):
    """By the id of the question, where there are several; the answer may be of any type."""
    begun("form", "f")
    form = ["--agent", "program.py:form", *STORE]
    number = next(each["id"] for each in _status(run, "f")["questions"] if each["node"].endswith("number"))
    unclear = run("runs", "answer", "f", "--deny", "not now", *form)
    assert (unclear.code, "name the question that is declined, by its id: " in unclear.said) == (1, True)
    ended = run("runs", "answer", "f", number, "--deny", "not now", *form)
    assert (ended.code, f"declined to answer question '{number}'" in ended.said) == (1, True)


def test_several_questions_are_answered_by_their_ids(run, begun):
    """Some now and some later; a wrong one among them, and one that is not said whose it is, keep all from being taken."""
    begun("form", "f")
    form = ["--agent", "program.py:form", *STORE]
    ids = {each["node"].rpartition("/")[2]: each["id"] for each in _status(run, "f")["questions"]}
    assert sorted(ids) == ["colour", "number", "pages", "text"]
    unclear = run("runs", "answer", "f", "42", *form)
    assert unclear.code == 1
    assert "name the question that is answered: " in unclear.said
    wrong = run("runs", "answer", "f", f"{ids['number']}=42", f"{ids['colour']}=blue", *form)
    assert wrong.code == 1
    assert "asks for 'red' | 'green', as JSON or as plain text" in wrong.said
    assert len(_status(run, "f")["questions"]) == 4
    some = run("runs", "answer", "f", f"{ids['number']}=42", f"{ids['text']}=7", *form)
    assert some.code == 0
    assert "Answer with: graphagent runs answer f" in some.said
    assert len(_status(run, "f")["questions"]) == 2
    rest = run("runs", "answer", "f", f"{ids['colour']}=green", f"{ids['pages']}=[1, 2]", *form)
    assert rest.out == "(42, 'green', '7', [1, 2])\n"


@pytest.mark.parametrize(
    ("words", "said", "posted"),
    [
        (["yes"], "I saw: posted to ada", ["posted to ada"]),
        (['{"to": "bob"}'], "I saw: posted to bob", ["posted to bob"]),
        (["no"], "I saw: ", []),
        (["no", "she", "moved"], "she moved", []),
        (["No, she moved"], "she moved", []),
    ],
)
def test_a_tool_call_is_approved_denied_or_changed(run, begun, home, words, said, posted):
    """Yes, no with a reason for the model, or other arguments."""
    begun("letters", "post-1", "write to ada")
    ended = run("runs", "answer", "post-1", *words, *LETTERS)
    assert ended.code == 0, ended.err
    assert said in ended.out
    assert _effects(home) == posted
    assert _status(run, "post-1")["cost"] == "0.0048"


@pytest.mark.parametrize(
    ("words", "out"), [(["yes"], "approved by Ada\n"), (["no", "too", "long"], "denied by Ada: too long\n")]
)
def test_who_approves_a_value_is_kept(run, begun, words, out):
    """As `by` of Approved and Denied, for the node that comes after."""
    begun("notice", "n")
    ended = run("runs", "answer", "n", *words, "--by", "Ada", "--agent", "program.py:notice", *STORE)
    assert (ended.code, ended.out) == (0, out)


def test_words_that_are_no_verdict_are_refused(run, begun, home):
    """A tool call is not approved by accident."""
    begun("letters", "post-1")
    for word in ("perhaps", "yesterday", "yes please", "[1]", "42"):
        ended = run("runs", "answer", "post-1", word, *LETTERS)
        assert ended.code == 1
        assert ended.err == "error: question 'c2' asks for yes, no with a reason, or other arguments as JSON\n"
    assert _effects(home) == []


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        (bool, "y", True), (bool, "No", False), (bool, "false", False), (str, "42", "42"), (str, "yes", "yes"), (int, "42", 42),
        (float, "42", 42.0), (list[str], '["a"]', ["a"]), (int | None, "null", None), (str | int, "7", 7), (str | int, "seven", "seven"),
        (dict[str, int], '{"a": 1}', {"a": 1}), (None, "plain text", "plain text"), (None, '{"a": 1}', {"a": 1}),
    ],
)  # fmt: skip
def test_answers_are_read_as_their_question_wants_them(kind, text, answer):
    """JSON where it fits the type, else plain text where that fits."""
    given = read_answer(Question("q", "?", "n", type=kind), text)
    assert (given, type(given)) == (answer, type(answer))


@pytest.mark.parametrize(
    ("kind", "text"), [(bool, "1"), (bool, "maybe"), (int, "4.5"), (int, "four"), (list[int], '["a"]')]
)
def test_answers_of_another_type_are_refused(kind, text):
    """Without repeating them."""
    with pytest.raises(AnswerError) as refused:
        read_answer(Question("q", "?", "n", type=kind), text)
    assert text not in str(refused.value).replace("question 'q' asks for", "")


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Shirt:
    size: Size
    spare: Size | None = None


def test_an_enum_is_asked_for_by_its_members():
    """A person sees what may be typed, and a refusal says it again, with the constraint that is broken."""
    size, count = Question("q", "?", "n", type=Size), Question("q", "?", "n", type=Annotated[int, Field(ge=5)])
    assert wanted(size) == "'s' | 'l', as JSON or as plain text"
    assert read_answer(size, "l") is Size.LARGE
    with pytest.raises(AnswerError, match=r"asks for 's' \| 'l', as JSON or as plain text: must be 's' or 'l'"):
        read_answer(size, "m")
    with pytest.raises(AnswerError, match="asks for int, as JSON or as plain text: must be greater than or equal to 5"):
        read_answer(count, "2")
    parts = parts_of(Question("q", "?", "n", type=Shirt))
    assert [each.described for each in parts] == ["size: 's' | 'l'", "spare: 's' | 'l' | None, may be left out"]


def test_a_form_is_asked_for_by_its_fields():
    """Where only its JSON schema is known, such as that of a question of a tool server."""
    sizes = {"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]}
    properties = {"sure": {"type": "boolean"}, "size": sizes, "colour": {"enum": ["red"]}, "tags": {"type": "array"}}
    question = Question(
        "q", "?", "n", type=Any, json_schema={"type": "object", "properties": properties, "required": ["sure"]}
    )
    sure, size, colour, tags = parts_of(question)
    assert [each.described for each in (sure, size, colour)] == [
        "sure: bool",
        "size: 's' | 'l', may be left out",
        "colour: 'red', may be left out",
    ]
    assert [read_part(sure, "yes"), read_part(size, "l"), read_part(tags, '["a"]')] == [True, "l", ["a"]]
    with pytest.raises(AnswerError, match=r"'size' is 's' \| 'l'"):
        read_part(size, "m")
    assert read_answer(question, '{"sure": true}') == {"sure": True}
    with pytest.raises(
        AnswerError, match=r"asks for a JSON object with sure: bool; size: .*: sure: must be of type boolean$"
    ):
        read_answer(question, '{"sure": 1}')
    assert read_answer(question, "no, not now") == Deny("not now")


@pytest.mark.parametrize(
    ("text", "answer"),
    [("yes", Approve()), ("no", Deny()), ("No, too short", Deny("too short")), ("maybe", None), ("{}", None)],
)
def test_a_value_is_approved_by_a_yes_or_no(text, answer):
    """It has no arguments that could be changed, so JSON is no answer."""
    question = Question("q", "Send it?", "n", "approval", "Dear Ada")
    if answer is not None:
        assert read_answer(question, text) == answer
        return
    with pytest.raises(AnswerError, match=r"question 'q' asks for yes, or no with a reason$"):
        read_answer(question, text)


def test_an_id_may_hold_anything():
    """Such as an equals sign, or be the beginning of another one."""
    questions = [Question("a", "?", "n", type=str), Question("a=b", "?", "m", type=str)]
    assert read_answers(questions[:1], ["a=b=c"]) == {"a": "b=c"}
    assert read_answers(questions, ["a=1", "a=b=2"]) == {"a": "1", "a=b": "2"}
    assert wanted(questions[0]) == "text"


def test_an_id_that_no_question_has_is_named():
    """With those that there are, whether there is one question or several; a text with an equals sign is still an answer."""
    sure, why = Question("sure:1", "?", "n", kind="approval"), Question("why:2", "?", "m", type=str)
    for questions, words, unknown in (
        ([sure], ["approval:99=yes"], "approval:99"),
        ([sure], ["call_1=yes"], "call_1"),
        ([why], ["sure:1=yes"], "sure:1"),
        ([sure, why], ["why:2=so", "sure:3=yes"], "sure:3"),
    ):
        ids = ", ".join(f"{each.id}=…" for each in questions)
        said = f"there is no open question {unknown!r}; name the question that is answered: {ids}"
        with pytest.raises(AnswerError, match=f"^{re.escape(said)}$"):
            read_answers(questions, words)
    assert read_answers([why], ["x=1", "is", "true"]) == {"why:2": "x=1 is true"}
    assert read_answers([why], ["why:2=sure:1=yes"]) == {"why:2": "sure:1=yes"}


def test_a_person_at_a_terminal_is_asked(home, begun):
    """Until the answer fits; while that takes, nothing else is shown."""
    begun("agent", "mail-1", "the party")
    child = forkserver.terminal(
        f"{sys.executable} -m graphagent runs answer mail-1 --agent program.py:agent --store runs.db",
        cwd=str(home), env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"}, dimensions=(24, 80), encoding="utf-8", timeout=600,
    )  # fmt: skip
    child.expect("Send it\\?")
    child.expect("about: Dear all, about the party.")
    child.expect("yes or no> ")
    child.sendline("perhaps")
    child.expect("asks for yes or no")
    child.expect("yes or no> ")
    child.sendline("yes")
    child.expect("sent")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert _effects(home) == ["drafted", "sent"]


# ---- going on


def test_a_failed_run_is_resumed(run, begun, home):
    """The failure is one line without the value, with the command that goes on; what was done before is not done again."""
    (home / "broken").touch()
    begun("fragile", "f-1", "x")
    fragile = ["--agent", "program.py:fragile", *STORE]
    ended = run("runs", "resume", "f-1", *fragile)
    assert ended.code == 1
    assert "error: node 'fails' failed with ValueError\n" in ended.err
    assert "Resume it with: graphagent runs resume f-1 --agent program.py:fragile --store runs.db" in ended.err
    assert "secret" not in ended.err + ended.out
    assert run("runs", "show", "f-1", *STORE).out.splitlines()[1] == (
        "  status    failed: node 'fails' failed with ValueError"
    )
    (home / "broken").unlink()
    assert run("runs", "resume", *fragile).out == "x!\n", "the newest, where none is named"
    assert _effects(home) == ["first", "last"]
    assert run("runs", "resume", "f-1", *fragile).out == "x!\n", "what has ended is only read"
    assert _effects(home) == ["first", "last"]


def test_the_result_is_told_to_programs(run, begun):
    """As JSON: the answer, or the questions."""
    begun("agent", "mail-1")
    waiting = _json(run("runs", "resume", "mail-1", "--json", *AGENT))
    assert (waiting["status"], waiting["output"]) == ("waiting", None)
    assert waiting["questions"] == [
        {
            "id": "ask_human:2",
            "question": "Send it?",
            "node": "ask_human",
            "kind": "question",
            "answer": "yes or no",
            "deadline": None,
        }
    ]
    done = _json(run("runs", "answer", "mail-1", "no", "--json", *AGENT))
    assert (done["status"], done["output"], done["questions"]) == ("done", "dropped", [])


def test_a_run_is_forked(run, begun, home):
    """Before a node, behind one, or behind an entry; the first one stays as it is."""
    begun("agent", "mail-1", "the party")
    run("runs", "answer", "mail-1", "yes", *AGENT)
    for option in (["--before", "ask_human"], ["--after", "draft"], ["--at", "2"]):
        name = option[0].strip("-")
        ended = run("runs", "fork", "mail-1", *option, "--run-id", name, *AGENT)
        assert ended.code == 0, ended.err
        assert (
            f"Answer with: graphagent runs answer {name} ANSWER --agent program.py:agent --store runs.db" in ended.err
        )
        assert run("runs", "answer", name, "no", *AGENT).out == "dropped\n"
    assert _effects(home) == ["drafted", "sent"]
    assert _status(run, "mail-1")["status"] == "done"
    assert "fork of   mail-1, after its entry 2" in run("runs", "show", "at", *STORE).out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "choose where to fork: one of --before NODE, --after NODE and --at N"),
        (["--at", "1", "--after", "draft"], 2, "choose where to fork"),
        (["--before", "nowhere"], 2, "has not come to a node 'nowhere'; it executed: 'draft'"),
        (["--at", "99"], 2, "has the entries 1 to 4, and no 99"),
        (["--at", "1", "--run-id", "mail-1"], 1, "there is a run 'mail-1' already"),
    ],
)
def test_a_fork_that_cannot_be_is_refused(run, begun, options, code, said):
    """The error says what there is."""
    begun("agent", "mail-1")
    ended = run("runs", "fork", "mail-1", *options, *AGENT)
    assert ended.code == code
    assert said in ended.said
    assert len(_json(run("runs", "list", "--json", *STORE))) == 1


def test_a_run_is_executed_again_on_what_was_recorded(run, begun, home):
    """No tool is called and no person is asked a second time."""
    begun("letters", "post-1")
    run("runs", "answer", "post-1", "yes", *LETTERS)
    ended = run("runs", "rerun", "post-1", "--run-id", "again", *LETTERS)
    assert ended.code == 0, ended.err
    assert ended.out == "I saw: posted to ada\n"
    assert _effects(home) == ["posted to ada"]
    refused = run("runs", "rerun", "post-1", "--until", "nowhere", *LETTERS)
    assert refused.code == 2
    assert "has not come to a node 'nowhere'" in refused.said


def test_a_strategy_that_changed_is_refused(run, begun, home):
    """The differences are named; it is taken all the same where that is said and the journal fits."""
    begun("agent", "mail-1")
    text = (home / "program.py").read_text()
    (home / "program.py").write_text(text.replace("approve.on(False) >> drop >> END", "approve.on(False) >> END"))
    ended = run("runs", "answer", "mail-1", "yes", *AGENT)
    assert ended.code == 1
    assert "drop" in ended.said
    assert ended.err.count("\n") == 1
    assert run("runs", "answer", "mail-1", "yes", "--allow-changed", *AGENT).out == "sent\n"


def test_the_agents_own_store_is_used(run, begun, home):
    """Where no other one is named; its key is its own business."""
    begun("agent", "mail-1")
    os.rename("runs.db", home / "own.db")
    assert run("runs", "answer", "mail-1", "yes", "--agent", "program.py:own").out == "sent\n"
    assert "mail-1" in run("runs", "show", "--agent", "program.py:own").out
    refused = run("runs", "resume", "mail-1", "--agent", "program.py:own", "--key", "env:X")
    assert refused.code == 2
    assert "the agent has a store of its own" in refused.said


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("program.py:nobody", "'program.py' has no 'nobody'; agents in it: agent, "),
        ("program.py:number", "is an int, and no agent; in it are: agent, "),
        ("program.py:mail", "is a Strategy, and no agent; in it are: agent, "),
        ("program.py", "does not hold exactly one agent; write program.py:NAME"),
        ("nowhere.py:agent", "there is no Python file 'nowhere.py'"),
    ],
)
def test_an_agent_that_is_none_is_refused(run, begun, target, said):
    """The error says what is there."""
    begun("agent", "mail-1")
    ended = run("runs", "resume", "--agent", target, *STORE)
    assert ended.code == 2
    assert said in ended.said


def test_a_function_may_give_the_agent(run, begun):
    """It is called without arguments."""
    begun("agent", "mail-1")
    assert run("runs", "answer", "mail-1", "yes", "--agent", "program.py:make", *STORE).out == "sent\n"


def test_a_blocking_agent_is_one_too(run, begun, home):
    """As scripts make it; what a script does as a program stands under `__main__`, as the error of one that does not says."""
    begun("agent", "mail-1")
    (home / "script.py").write_text(
        "from graphagent import blocking\nimport program\n\nagent = blocking(program.make())\n"
    )
    assert "script.py:AGENT" not in run("runs", "resume", "mail-1", "--agent", "script.py", *STORE).said
    assert run("runs", "answer", "mail-1", "yes", "--agent", "script.py:agent", *STORE).out == "sent\n"
    (home / "other.py").write_text("import anyio\nfrom program import agent\n\nanyio.run(agent.run, 'x')\n")
    with pytest.raises(RuntimeError) as caught:
        run("runs", "resume", "mail-1", "--agent", "other.py:agent", *STORE)
    assert "under if __name__ == '__main__':" in caught.value.__notes__[0]


# ---- other processes


def test_ctrl_c_pauses_a_run(run, begun, home):
    """Behind what is being done, with the reason in the store and the command that goes on; nothing is done twice."""
    begun("agent", "seed")  # so that the store is there
    process = forkserver.Popen([sys.executable, "begin.py", "waits", "w", "x", ""], cwd=home)
    _until(lambda: "slow" in _effects(home))
    process.kill()
    process.wait()
    assert "interrupted: the process that executed it died" in run("runs", "show", "w", *STORE).out
    child = _started(home, "resume", "w", *WAITS)
    _until(lambda: _effects(home).count("slow") == 2)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert child.poll() is None, "it ends behind the node"
    (home / "go").touch()
    out, err = child.communicate(timeout=600)
    assert child.returncode == 130, err
    assert out == ""
    assert "Pausing after the current work" in err
    assert "Run w: paused" in err
    assert "Resume it with: graphagent runs resume w --agent program.py:waits --store runs.db" in err
    assert run("runs", "show", "w", *STORE).out.splitlines()[1] == "  status    paused: Ctrl-C"
    ended = run("runs", "resume", "w", *WAITS)
    assert (ended.code, ended.out) == (0, "x!\n")
    assert _effects(home) == ["drafted", "first", "slow", "slow", "last"]


def test_ctrl_c_twice_breaks_off(run, begun, home):
    """The node that was at work is executed again when the run goes on."""
    process = forkserver.Popen([sys.executable, "begin.py", "waits", "w", "x", ""], cwd=_put(begun, home))
    _until(lambda: "slow" in _effects(home))
    process.kill()
    process.wait()
    child = _started(home, "resume", "w", *WAITS)
    _until(lambda: _effects(home).count("slow") == 2)
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=600)
    assert child.returncode == 130, err
    assert "Run w: cancelled" in err
    assert run("runs", "show", "w", *STORE).out.splitlines()[1] == "  status    cancelled"
    (home / "go").touch()
    assert run("runs", "resume", "w", *WAITS).out == "x!\n"


def _put(begun, home):
    begun("agent", "seed")
    (home / "effects.log").unlink()
    return home


def test_a_run_that_a_process_has_is_left_to_it(run, begun, home):
    """A second one is told who has it; it can be watched, and is shown when it has ended."""
    process = forkserver.Popen([sys.executable, "begin.py", "waits", "w", "x", ""], cwd=_put(begun, home))
    try:
        _until(lambda: "slow" in _effects(home))
        refused = run("runs", "resume", "w", *WAITS)
        assert refused.code == 1
        assert f"process {process.pid} on" in refused.said
        assert f"running, by process {process.pid} on" in run("runs", "show", "w", *STORE).out
        assert run("runs", "prune", "w", "--yes", *STORE).code == 1
        watching = _started(home, "show", "w", "--follow", *STORE)
        line = watching.stderr.readline()
        (home / "go").touch()
        out, _ = watching.communicate(timeout=600)
    finally:
        (home / "go").touch()
        process.wait(timeout=600)
    assert watching.returncode == 0
    assert re.fullmatch(r"[\d.]+ s · slow\n", line)
    assert "  status    done\n" in out
    assert _effects(home) == ["first", "slow", "last"]


def test_a_pipe_gets_plain_lines(begun, home):
    """No control sequence, on standard error, so that standard output is the answer alone."""
    begun("letters", "post-1")
    child = _started(home, "answer", "post-1", "yes", *LETTERS)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 0, err
    assert out == "I saw: posted to ada\n"
    assert "\x1b" not in err
    assert re.search(r"^[\d.]+ s · 2 turns · 3,060 tokens · cost 0\.0036 · execute_tools", err, re.MULTILINE)
    assert re.search(r"^Run post-1: done, [\d.]+ s, 3 turns, 4,080 tokens, cost 0\.0048\.$", err, re.MULTILINE)


@pytest.mark.one_value("width")
@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_a_live_line(begun, home, width):
    """It says what is being executed, stays in one line, and is gone in the end; Ctrl-C pauses."""
    process = forkserver.Popen([sys.executable, "begin.py", "waits", "w", "x", ""], cwd=_put(begun, home))
    _until(lambda: "slow" in _effects(home))
    process.kill()
    process.wait()
    child = forkserver.terminal(
        f"{sys.executable} -m graphagent runs resume w --agent program.py:waits --store runs.db",
        cwd=str(home), env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"}, dimensions=(24, width), encoding="utf-8", timeout=600,
    )  # fmt: skip
    child.expect(r"[\d.]+ s · slow")
    child.expect(r"[\d.]+ s · slow")
    child.sendintr()
    child.expect("Pausing after the current work")
    (home / "go").touch()
    child.expect("Run w: paused")
    child.expect("Resume it with: graphagent runs resume w")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130


def test_a_live_line_is_never_longer_than_the_terminal():
    """Whatever is being executed; a line that is broken would not be wiped."""
    import io

    from rich.console import Console
    from rich.live import Live

    from graphagent.cli.runs._progress import LiveLine

    progress = LiveLine()
    progress.at = "\x1b[2J" + "a node with a very long name / " * 20
    progress.turns, progress.tokens = 12_345, 1_234_567
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=None)
    with Live(console=console, get_renderable=progress._picture, auto_refresh=False) as live:
        live.refresh()
    lines = re.split(r"\n|\r", re.sub(r"\x1b\[(\?25[lh]|2K)", "", file.getvalue()))
    assert {len(line) for line in lines} <= {0, 80}
    assert "1,234,567 tokens · �[2Ja node" in lines[0]
