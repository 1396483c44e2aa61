"""Split a question, research the parts at the same time, and write a report."""

from __future__ import annotations

from dataclasses import dataclass

from graphagent import END, START, Context, Strategy, each, node
from graphagent.errors import BudgetError, NodeFailedError
from graphagent.llm import ToolCalls
from graphagent.nodes import Prompt, execute_tools, llm_request, update_prompt

_SPLIT = "First split the question into parts that can be researched independently of each other, each a full question. Answer none yet."
_REPORT = "Write the report that answers the question from these findings. Say what was not found out.\n\n{findings}"


@dataclass(frozen=True, slots=True)
class Questions:
    """The parts of a question, each of which can be understood and researched without the others."""

    questions: list[str]

    def __post_init__(self) -> None:
        if not self.questions:
            raise ValueError("name one question or more")


@node
async def collect(ctx: Context, found: list[str | NodeFailedError]) -> str:
    """Return the prompt of the report, with the findings."""
    failures = [finding for finding in found if isinstance(finding, NodeFailedError)]
    if len(failures) == len(found):
        raise failures[0]
    texts = (finding if isinstance(finding, str) else missing(finding) for finding in found)
    return _REPORT.format(findings="\n\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)))


def missing(error: object) -> str:
    """Return the text for the report in the place of a part that failed."""
    return f"(not found out: {error})"


def research(
    *, questions: int = 5, parallel_questions: int = 3, turns: int = 8, parallel_tools: int = 1, name: str = "research"
) -> Strategy[Prompt, str]:
    """Make a strategy that splits a question, researches the parts at the same time, and writes a report.

    Each part has a transcript of its own, which begins with the question; the report is written from the findings alone. If
    the research of a part fails or uses up its turns, the others continue, and the report says what is missing. An agent's
    own `max_turns` counts the turns of all parts: it should be about `questions * turns + 2`.

    ```mermaid
    flowchart TD
        START(("START"))
        n1("prepare"):::tap
        n2["split"]
        subgraph n3["work<br/>each, limit 3, collect failures"]
            n3_START((" "))
            subgraph n3_n1["part"]
                n3_n1_START((" "))
                subgraph n3_n1_n1["find<br/>max 8 turns"]
                    n3_n1_n1_START((" "))
                    n3_n1_n1_n1["llm_request"]
                    n3_n1_n1_n2["execute_tools"]
                    n3_n1_n1_END(((" ")))
                    n3_n1_n1_START --> n3_n1_n1_n1
                    n3_n1_n1_n1 -->|"on ToolCalls"| n3_n1_n1_n2
                    n3_n1_n1_n2 --> n3_n1_n1_n1
                    n3_n1_n1_n1 -->|"on str"| n3_n1_n1_END
                end
                n3_n1_END(((" ")))
                n3_n1_START --> n3_n1_n1_START
                n3_n1_n1_END --> n3_n1_END
                n3_n1_n1_END -.->|"on error BudgetError, when, map missing"| n3_n1_END
            end
            n3_START --> n3_n1_START
            n3_n1_END --> n3_END
            n3_END(((" ")))
        end
        n4["collect"]
        n5["report"]
        END((("END")))
        START --> n1
        n1 --> n2
        n2 -->|"on Questions, map"| n3_START
        n3_END --> n4
        n4 --> n5
        n5 --> END
        classDef tap stroke-dasharray: 4 3
    ```

    Args:
        questions: The largest number of parts; more are left out.
        parallel_questions: How many of them are researched at once.
        turns: The largest number of model turns for each part.
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.

    Raises:
        ValueError: the number of questions is less than 1.
    """
    if type(questions) is not int or questions < 1:
        raise ValueError(f"{name!r}: questions={questions!r} would research nothing; give 1 or more")
    split = llm_request(output=Questions, name="split", purpose="plan")
    ask = llm_request(purpose="draft")
    act = execute_tools(limit=parallel_tools)
    find = Strategy("find", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END).using(max_turns=turns)
    part = Strategy(
        "part",
        START >> find >> END,
        find.on_error(BudgetError).when(lambda error: bool(error.where)).map(missing) >> END,
    )
    work = each(part, limit=parallel_questions, failures="collect", name="work")
    report = llm_request(tools=False, name="report")
    return Strategy(
        name,
        START >> update_prompt(_SPLIT, name="prepare") >> split,
        split.on(Questions).map(lambda found: found.questions[:questions]) >> work >> collect >> report >> END,
    )
