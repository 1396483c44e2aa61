"""Koog's page on AgentMemory as one program: its sixteen code blocks, in their order, as they are written here.

    python examples/koog_memory.py

It needs no key and no network: scripted models answer, and the memory is in a folder that is removed at the end.
docs/koog.md shows the same blocks beside the originals, and says what behaves differently.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import anyio

from graphagent import END, START, Agent, Context, Strategy, node, tap
from graphagent.errors import StoreError, WrongKeyError
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import (
    EVERYTHING,
    AgentMemory,
    Concept,
    EncryptedMemoryProvider,
    Fact,
    FactsStep,
    FactType,
    FileMemoryProvider,
    MultipleFacts,
    NoMemory,
    Scope,
    SingleFact,
    Subject,
)
from graphagent.nodes import auto_detect_facts, load_facts
from graphagent.store import new_key
from graphagent.testing import ScriptedModel, check_provider, openai_server
from graphagent_strategies import single_run

APP = Scope.product("my-app")


# 01 A single fact

THEME = Concept("ide-theme", "the user's preferred IDE theme")


def a_single_fact() -> None:
    fact = SingleFact(THEME, "Dark Theme")
    assert fact.concept.fact_type is FactType.SINGLE
    assert fact.value == "Dark Theme"
    assert fact.timestamp is None  # set when it is saved
    print("01", fact)


# 02 A fact with several values

LANGUAGES = Concept("programming-languages", "languages the user knows", FactType.MULTIPLE)


def several_values() -> None:
    fact = MultipleFacts(LANGUAGES, ["Kotlin", "Java", "Python"])
    assert fact.values == ("Kotlin", "Java", "Python")
    print("02", fact)


# 03 Subjects of one's own

MACHINE = Subject(
    "machine", "technical environment: installed tools, package managers, packages, SDKs, operating system"
)
USER = Subject("user", "the user: conversation preferences, issue history, contact details")


def subjects() -> None:
    assert USER.priority == MACHINE.priority == 1
    assert USER.priority < EVERYTHING.priority  # facts about the user come before general ones
    assert Subject("user") == USER  # a value, found by its name
    print("03", MACHINE.name, USER.name)


# 04 The settings


def settings(root: Path) -> None:
    memory = AgentMemory(
        provider=FileMemoryProvider(root),
        agent_name="your-agent-name",
        feature_name="your-feature-name",
        product_name="your-product-name",
        organization_name="your-organization-name",
    )
    assert isinstance(memory.provider, FileMemoryProvider)
    assert isinstance(AgentMemory().provider, NoMemory)  # every setting may be left out
    print("04", memory)


# 05 Installing


async def installing(root: Path) -> None:
    with openai_server(["Hello!"], model="llama3.2") as ollama:  # in earnest: http://localhost:11434/v1
        agent = Agent(single_run(), model=OpenAIModel("llama3.2", base_url=ollama.base_url))
        agent.install(
            AgentMemory,
            provider=FileMemoryProvider(root),
            agent_name="your-agent-name",
            feature_name="your-feature-name",
            product_name="your-product-name",
            organization_name="your-organization-name",
        )
        result = await agent.run("Hi!")
    assert result.output == "Hello!"
    print("05", result.output)


# 06 A provider


def a_provider(root: Path) -> FileMemoryProvider:
    provider = FileMemoryProvider(root / "customer-support-memory")
    assert not root.joinpath("customer-support-memory").exists()  # nothing is made before something is kept
    print("06", type(provider).__name__)
    return provider


# 07 Saving

GREETING = Concept("greeting", "the user's name")


async def saving(provider: FileMemoryProvider, root: Path) -> None:
    await provider.save(SingleFact(GREETING, "John"), subject=USER, scope=APP)
    assert b'"values":["John"]' in everything_in(root)  # readable with any editor
    print("07", "saved")


def everything_in(root: Path) -> bytes:
    """The names and contents of all files under a folder."""
    return b"".join(bytes(file.relative_to(root)) + file.read_bytes() for file in root.rglob("*") if file.is_file())


# 08 Loading


async def loading(provider: FileMemoryProvider) -> None:
    known = await provider.load(GREETING, subject=USER, scope=APP)
    if known:
        print("08", "Memories found:", *known)
    else:
        print("08", "Information not found. First time here?")
    assert [fact.value for fact in known] == ["John"]
    assert known[0].timestamp is not None
    assert await provider.load(GREETING, subject=USER, scope=Scope.product("another-app")) == []


# 09 Memory nodes in a strategy

PREFERENCE = Concept("user-preference", "the user's preferred programming language")

detect = auto_detect_facts(subjects=[USER, MACHINE])
recall = load_facts(PREFERENCE, subjects=[USER])
example_agent = Strategy("example-agent", START >> detect >> recall >> END)


async def memory_nodes(root: Path) -> None:
    model = ScriptedModel([{"facts": [found("user", "user-preference", "Kotlin"), found("machine", "sdk", "JDK 17")]}])
    agent = Agent(example_agent, model=model)
    agent.install(AgentMemory, provider=FileMemoryProvider(root))
    result = await agent.run("I write Kotlin. There is a JDK 17 on this machine.")
    [shown] = [step for step in result.memory.steps if isinstance(step, FactsStep)]
    assert [known.fact.value for known in shown.facts] == ["Kotlin"]  # the machine's facts were not asked for
    print("09", *(known.fact for known in shown.facts))


def found(subject: str, keyword: str, value: str) -> dict[str, str]:
    """One entry of what a model answers when it is asked for facts."""
    return {"subject": subject, "keyword": keyword, "description": f"the {keyword} of the {subject}", "value": value}


# 10 Encryption


async def encryption(root: Path) -> None:
    os.environ["MEMORY_KEY"] = new_key()  # in earnest: made once, and kept where secrets are kept
    sealed = EncryptedMemoryProvider(root, key="env:MEMORY_KEY")
    await sealed.save(SingleFact(GREETING, "John"), subject=USER, scope=APP)

    on_disk = everything_in(root)
    for secret in (b"John", b"greeting", b"my-app", b"user"):
        assert secret not in on_disk

    assert [fact.value for fact in await sealed.load(GREETING, USER, APP)] == ["John"]
    try:
        await EncryptedMemoryProvider(root, key=new_key()).load(GREETING, USER, APP)
    except WrongKeyError:
        print("10", "another key is refused")
    else:
        raise AssertionError("another key opened the memory")


# 11 Remembering what the user prefers

LANGUAGE = Concept("preferred-language", "What programming language is preferred by the user?")


async def a_preference(provider: FileMemoryProvider) -> None:
    await provider.save(SingleFact(LANGUAGE, "Java"), subject=USER, scope=APP)
    await provider.save(SingleFact(LANGUAGE, "Kotlin"), subject=USER, scope=APP)
    [known] = await provider.load(LANGUAGE, USER, APP)
    assert known.value == "Kotlin"  # the newest counts
    assert [fact.value for fact in await provider.history(LANGUAGE, USER, APP)] == ["Kotlin", "Java"]
    print("11", known)


# 12 Memory in a node of one's own


@tap(needs=[AgentMemory])
async def load_project_info(ctx: Context, task: str) -> None:
    await ctx.feature(AgentMemory).load_facts_to_agent(LANGUAGE)


@tap(needs=[AgentMemory])
async def save_project_info(ctx: Context, task: str) -> None:
    await ctx.feature(AgentMemory).save_facts_from_history(LANGUAGE, subject=USER, scope=APP)


@node(needs=[AgentMemory])
async def known_language(ctx: Context, task: str) -> str:
    [fact] = await ctx.feature(AgentMemory).load(LANGUAGE, subjects=[USER])
    return fact.value


async def a_node(root: Path) -> None:
    strategy = Strategy("project", START >> load_project_info >> save_project_info >> known_language >> END)
    agent = Agent(strategy, model=ScriptedModel([{"values": ["Kotlin"]}]))
    agent.install(AgentMemory, provider=FileMemoryProvider(root), product_name="my-app", subjects=[USER])
    result = await agent.run("I would rather write Kotlin.")
    assert result.output == "Kotlin"
    kinds = [type(step).__name__ for step in result.memory.steps]
    assert kinds == ["TaskStep", "FinalAnswerStep"]  # the question about the fact is not in the transcript
    print("12", result.output)


# 13 Facts of any concept

learn = auto_detect_facts(subjects=[USER, MACHINE])


async def any_concept(root: Path) -> None:
    answer = {
        "facts": [
            found("user", "editor", "vim"),
            found("machine", "tools", "git"),
            found("machine", "tools", "docker"),
            found("weather", "rain", "yes"),  # nobody asked about the weather
        ]
    }
    provider = FileMemoryProvider(root)
    agent = Agent(Strategy("listener", START >> learn >> END), model=ScriptedModel([answer]))
    agent.install(AgentMemory, provider=provider)
    result = await agent.run("I use vim. Here are git and docker. It rains.")
    here = Scope.agent("listener")  # the strategy's name, unless agent_name says another
    [editor], [tools] = await provider.load_all(USER, here), await provider.load_all(MACHINE, here)
    assert (editor.value, editor.source.run_id, editor.source.trust) == ("vim", result.run_id, "inferred")
    assert tools.values == ("git", "docker")
    assert await provider.verify() == 2
    print("13", f"{editor}, {tools}")


# 14 Errors


async def errors(root: Path) -> None:
    provider = FileMemoryProvider(a_file(root))  # a file stands where the folder should be
    try:
        await provider.save(SingleFact(LANGUAGE, "Kotlin"), subject=USER, scope=APP)
    except StoreError as error:
        said = f"Oops! Couldn't save: {error}"
    else:
        raise AssertionError("a fact was saved where nothing can be written")
    assert "Not a directory" in said
    assert "Kotlin" not in said  # an error shows no fact
    print("14", said)


def a_file(path: Path) -> Path:
    path.touch()
    return path


# 15 A provider of one's own


class MyProvider:
    def __init__(self) -> None:
        self.kept: dict[tuple[Concept, Subject, Scope], list[Fact]] = {}

    async def save(self, fact: Fact, subject: Subject, scope: Scope) -> None:
        facts = self.kept.setdefault((fact.concept, subject, scope), [])
        if isinstance(fact, SingleFact):
            facts.clear()  # the last one counts, while MultipleFacts add up
        facts.append(fact)

    async def load(self, concept: Concept, subject: Subject, scope: Scope) -> list[Fact]:
        return list(self.kept.get((concept, subject, scope), ()))

    async def load_all(self, subject: Subject, scope: Scope) -> list[Fact]:
        return [fact for (_, *place), facts in self.kept.items() if place == [subject, scope] for fact in facts]

    async def load_by_description(self, description: str, subject: Subject, scope: Scope) -> list[Fact]:
        wanted = description.casefold()
        known = await self.load_all(subject, scope)
        return [fact for fact in known if wanted in fact.concept.description.casefold()]


async def a_provider_of_ones_own() -> None:
    mine = MyProvider()
    await check_provider(lambda: mine)  # raises an AssertionError that names the promise that is not kept
    assert mine.kept
    print("15", "keeps every promise")


# 16 Several values under one concept

SKILLS = Concept("user-skills", "programming languages the user is skilled in", fact_type=FactType.MULTIPLE)


async def skills(provider: FileMemoryProvider) -> None:
    await provider.save(MultipleFacts(SKILLS, ["Kotlin", "Java"]), subject=USER, scope=APP)
    await provider.save(MultipleFacts(SKILLS, ["Java", "Python"]), subject=USER, scope=APP)
    [known] = await provider.load(SKILLS, USER, APP)
    assert known.values == ("Kotlin", "Java", "Python")  # together, each once
    print("16", known)


async def main(root: Path) -> None:
    a_single_fact()
    several_values()
    subjects()
    settings(root / "04")
    await installing(root / "05")
    provider = a_provider(root)
    await saving(provider, root)
    await loading(provider)
    await memory_nodes(root / "09")
    await encryption(root / "10")
    await a_preference(provider)
    await a_node(root / "12")
    await any_concept(root / "13")
    await errors(root / "14")
    await a_provider_of_ones_own()
    await skills(provider)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(main, Path(folder))
