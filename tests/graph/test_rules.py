"""Rules over paths are proven when a strategy is made: the shortest path that breaks one is named, and none that holds is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from graphagent import tool
from graphagent.errors import StrategyError
from graphagent.graph import (
    END,
    START,
    Node,
    PathRule,
    Strategy,
    each,
    guarded,
    never_together,
    node,
    parallel,
    precedes,
    race,
)
from graphagent.graph._types import fits
from graphagent.graph.rules._proof import patterns, shortest_break
from graphagent.nodes import ask_human
from tests.counting import calls
from tests.graph.interleavings import rules_of, shortest, small_strategies
from tests.graph.parts import nothing, step, steps, taps
from tests.thorough import examples

approve, send, search, moderate = steps("approve send search moderate")
APPROVED = precedes(approve, send)
GUARDED = guarded(search, by=moderate, before=send)
APART = never_together(search, send)


def problems(*paths: Any, rules: Any = ()) -> list[str]:
    """Return what is wrong with a strategy of these paths."""
    try:
        Strategy("x", *paths, rules=rules)
    except StrategyError as error:
        return [str(problem) for problem in error.problems]
    return []


def ways(*paths: Any, rules: Any) -> list[str]:
    """Return the paths that break the rules of a strategy."""
    return [problem.partition(" on the path ")[2].rpartition(": ")[0] for problem in problems(*paths, rules=rules)]


def test_a_rule_that_holds_is_accepted():
    """Each of the three, and a strategy with all of them."""
    assert not problems(START >> approve >> send >> END, rules=[APPROVED])
    assert not problems(START >> search >> moderate >> send >> END, rules=[GUARDED])
    assert not problems(START >> approve, approve.on(str) >> search >> END, approve >> send >> END, rules=[APART])
    strategy = Strategy("x", START >> search >> approve >> moderate >> send >> END, rules=[APPROVED, GUARDED])
    assert strategy.path_rules == (APPROVED, GUARDED)
    assert list(map(str, strategy.path_rules)) == [
        "precedes(approve, send)",
        "guarded(search, by=moderate, before=send)",
    ]


def test_a_broken_rule_is_drawn():
    """The problem names the rule, the shortest path that breaks it, with its edges, and what to do; others are told with it."""
    draft = step("draft", Any, str)
    assert problems(
        START >> draft,
        draft.when(bool) >> search >> moderate >> send >> END,
        draft.on(str) >> send,
        search.on_error(OSError).when(bool) >> send,
        step("stray") >> END,
        rules=[APPROVED, precedes(draft, send), precedes(search, moderate), GUARDED, APART],
    ) == snapshot(
        [
            "'stray': START never reaches it; add a path that leads to it, or remove it",
            "'approve': the rule precedes(approve, send) names it, and it is not in the strategy (there are: 'draft', 'search', 'moderate', 'send', 'stray')",
            "'send': it breaks the rule guarded(search, by=moderate, before=send) on the path START -> draft -[when bool]-> search -[on error OSError, when bool]-> send: 'moderate' has not been executed to its end since 'search'; lead the path through it in between, or change the rule",
            "'send': it breaks the rule never_together(search, send) on the path START -> draft -[when bool]-> search -[on error OSError, when bool]-> send: one run executes both; choose one of them with outlets such as .on(…) and .when(…), or change the rule",
        ]
    )
    assert problems(
        START >> draft, draft.on(str) >> send >> END, rules=[precedes("draft", send), precedes(send, draft)]
    ) == (
        snapshot(
            [
                "'draft': it breaks the rule precedes(send, draft) on the path START -> draft: 'send' has not been executed to its end before; lead the path through it first, or change the rule"
            ]
        )
    )


def test_the_shortest_path_is_drawn():
    """Nodes are counted, and not edges: inside subgraphs too."""
    a, b, c = steps("a b c")
    long = Strategy("long", START >> b >> c >> END)
    paths = [START >> a, a.when(bool) >> long >> send >> END, a.otherwise() >> search >> send]
    assert ways(*paths, send.on_error(OSError) >> approve >> END, rules=[APPROVED]) == [
        "START -> a -[otherwise]-> search -> send"
    ]
    assert ways(START >> a >> long >> send >> approve >> END, rules=[APPROVED, precedes(send, c)]) == [
        "START -> a -> long -> send",
        "START -> a -> long/b -> long/c",
    ]


def test_a_node_that_failed_has_not_been_executed():
    """What leaves a node by its error edge does not count as executed where that is asked for, and does where it is forbidden."""
    assert ways(START >> approve >> send >> END, approve.on_error(OSError) >> send, rules=[APPROVED]) == [
        "START -> approve -[on error OSError]-> send"
    ]
    assert ways(START >> search >> moderate >> send >> END, moderate.on_error(OSError) >> send, rules=[GUARDED]) == [
        "START -> search -> moderate -[on error OSError]-> send"
    ]
    assert ways(START >> search >> END, search.on_error(OSError) >> send >> END, rules=[APART]) == [
        "START -> search -[on error OSError]-> send"
    ]
    tap = taps("tap")
    assert ways(START >> tap >> send >> END, tap.on_error(OSError) >> send, rules=[precedes(tap, send)]) == [
        "START -> tap -[on error OSError]-> send"
    ]
    assert not problems(START >> approve.retry(attempts=3) >> send >> END, rules=[precedes("approve", send)])


def test_a_source_wants_a_guard_each_time():
    """A guard before the source does not count, and one in a loop does only for the source before it."""
    assert ways(START >> moderate >> search >> send >> END, rules=[GUARDED]) == ["START -> moderate -> search -> send"]
    paths = [START >> search >> moderate, moderate.when(bool) >> search, moderate.otherwise() >> send]
    assert not problems(*paths, send >> END, rules=[GUARDED])
    assert ways(*paths, send.when(bool) >> search, send >> END, search.on_error(OSError) >> send, rules=[GUARDED]) == [
        "START -> search -[on error OSError]-> send"
    ]
    back = [START >> send >> search, search.when(bool) >> send, search >> moderate >> END]
    assert ways(*back, rules=[GUARDED]) == ["START -> send -> search -[when bool]-> send"]


def test_a_loop_is_gone_through_as_often_as_it_takes():
    """The second round may do what the first may not."""
    judge = step("judge")
    paths = [START >> judge, judge.on("a") >> search >> judge, judge.on("b") >> send >> judge, judge.otherwise() >> END]
    assert ways(*paths, rules=[APART]) == ["START -> judge -[on 'a']-> search -> judge -[on 'b']-> send"]
    assert ways(*paths, rules=[never_together(send, search)]) == [
        "START -> judge -[on 'b']-> send -> judge -[on 'a']-> search"
    ]


def test_a_node_is_all_of_its_places():
    """A node object counts wherever it is; a path is one place. The same strategy may be used under two names."""
    mail = Strategy("mail", START >> approve >> send >> END)
    twice = [START >> mail >> mail.named("again") >> END]
    assert ways(START >> mail >> send >> END, rules=[APPROVED, precedes(mail, send)]) == [
        "START -> mail/approve -> mail/send"
    ]
    assert not problems(*twice, rules=[APPROVED, precedes("mail/send", "again/send")])
    assert ways(*twice, rules=[precedes("again/approve", send), never_together("mail/send", "again/send")]) == [
        "START -> mail/approve -> mail/send",
        "START -> mail/approve -> mail/send -> again/approve -> again/send",
    ]


def test_a_copy_that_breaks_a_rule_is_explained():
    """Its name is not in the rule, which means it all the same; the error says how to mean one place."""
    [copied] = problems(START >> send.named("reply") >> approve >> END, rules=[APPROVED])
    assert copied.endswith(
        "'reply' executes an element of the rule, and counts as that element; a path as text names one place alone"
    )
    [named] = problems(START >> send >> approve >> END, rules=[APPROVED])
    assert "counts as that" not in named


def test_a_subgraph_may_fail_wherever_it_is():
    """Its error edge is taken with whatever has been executed inside; it has been executed when it came to its end."""
    web = Strategy("web", START >> search >> moderate >> END)
    assert not problems(START >> web >> send >> END, rules=[GUARDED, precedes(web, send), precedes(moderate, send)])
    assert ways(
        START >> web >> send >> END,
        web.on_error(OSError) >> send,
        rules=[GUARDED, precedes(web, send), precedes(search, send), APART],
    ) == [
        "START -> web/search -[web on error OSError]-> send",
        "START -> web -[on error OSError]-> send",
        "START -> web -[on error OSError]-> send",
        "START -> web/search -[web on error OSError]-> send",
    ]


def test_what_is_inside_of_a_source_or_a_guard():
    """A source lasts until its end, so a guard inside it does not count; nor does a guard with a source inside it."""
    web = Strategy("web", START >> search >> moderate >> END)
    assert ways(START >> web >> send >> END, rules=[guarded(web, by=moderate, before=send)]) == ["START -> web -> send"]
    assert not problems(START >> web >> moderate >> send >> END, rules=[guarded(web, by="moderate", before=send)])
    assert ways(START >> web >> send >> END, rules=[guarded(search, by=web, before=send)]) == [
        "START -> web/search -> web/moderate -> send"
    ]
    again = Strategy("again", START >> moderate >> search >> END)
    assert ways(START >> search >> again >> send >> END, rules=[guarded(search, by=again, before=send)]) == [
        "START -> search -> again/moderate -> again/search -> send"
    ]
    assert ways(START >> search >> web >> END, rules=[guarded("search", by=web, before="web/moderate")]) == [
        "START -> search -> web/search -> web/moderate"
    ]


def test_branches_have_no_order():
    """Branches that run at once may do what they do in any order, and all of them run before the fork ends."""
    assert ways(START >> parallel(approve, send) >> END, rules=[APPROVED]) == ["START -> parallel/1/send"]
    assert ways(START >> parallel(search, send) >> END, rules=[APART]) == [
        "START -> parallel/0/search, and at the same time parallel/1/send"
    ]
    checked = Strategy("checked", START >> moderate >> send >> END)
    assert ways(START >> parallel(search, checked) >> END, rules=[GUARDED]) == [
        "START -> parallel/0/search, and at the same time parallel/1/checked/moderate -> parallel/1/checked/send"
    ]
    assert not problems(START >> parallel(approve, search) >> send >> END, rules=[APPROVED])
    assert not problems(
        START
        >> parallel(Strategy("w", START >> search >> moderate >> END), search)
        >> moderate.named("m")
        >> send
        >> END,
        rules=[guarded(search, by="m", before=send)],
    )
    assert ways(START >> parallel(search, moderate) >> send >> END, rules=[GUARDED]) == [
        "START -> parallel/0/search -> send"
    ]
    assert ways(
        START >> parallel(approve, search) >> send >> END, rules=[precedes("parallel/0/approve", "parallel/1/search")]
    ) == ["START -> parallel/1/search"]


def test_a_failure_that_is_collected_lets_the_run_continue():
    """With `failures="collect"` a branch that failed is over, and has not been executed to its end."""
    fork = parallel(approve, search, failures="collect")
    assert ways(START >> fork >> send >> END, rules=[APPROVED]) == [
        "START -> parallel/0/approve -[failure collected]-> send"
    ]
    many = each(Strategy("web", START >> search >> moderate >> END), failures="collect")
    assert ways(START >> many >> send >> END, rules=[GUARDED]) == [
        "START -> each/web/search -[failure collected]-> send"
    ]


def test_a_race_may_be_won_by_any_branch():
    """The others may have begun, and not have come to their end."""
    assert ways(START >> race(approve, search) >> send >> END, rules=[APPROVED]) == ["START -> race/1/search -> send"]
    fork = race(Strategy("web", START >> search >> moderate >> END), approve)
    assert not problems(START >> race(approve, approve.named("b")) >> send >> END, rules=[precedes("race", send)])
    assert ways(START >> fork >> send >> END, rules=[GUARDED, precedes(moderate, send)]) == [
        "START -> race/0/web/search -> send",
        "START -> race/1/approve -> send",
    ]


def test_an_each_may_have_no_items_or_many():
    """No item executes nothing; two may do different things at the same time."""
    assert ways(START >> each(approve) >> send >> END, rules=[APPROVED]) == ["START -> each (no items) -> send"]
    judge = step("judge")
    one = Strategy("one", START >> judge, judge.on("a") >> search >> END, judge >> send >> END)
    assert not problems(START >> one >> END, rules=[APART])
    assert ways(START >> each(one) >> END, rules=[APART]) == [
        "START -> each/one/judge -[on 'a']-> each/one/search, and at the same time each/one/judge -> each/one/send"
    ]


def test_what_is_tried_again_may_have_been_executed_in_part():
    """A subgraph, a fork and the strategy itself: the second attempt comes after whatever the first has begun."""
    whole = Strategy("whole", START >> send >> search >> moderate >> END, rules=[GUARDED])
    assert whole.retry(attempts=1).timeout(5).path_rules == (GUARDED,)
    with pytest.raises(StrategyError) as caught:
        whole.retry(attempts=2)
    assert str(caught.value) == snapshot("""\
strategy 'whole' has 1 problem:
  'send': it breaks the rule guarded(search, by=moderate, before=send) on the path START -> send -> search -[tried again]-> send: 'moderate' has not been executed to its end since 'search'; lead the path through it in between, or change the rule\
""")
    inner = Strategy("inner", START >> send >> search >> moderate >> END)
    assert not problems(START >> inner >> END, rules=[GUARDED])
    assert ways(START >> inner.retry(attempts=2) >> END, rules=[GUARDED]) == [
        "START -> inner/send -> inner/search -[inner tried again]-> inner/send"
    ]
    fork = each(inner).retry(attempts=2)
    assert ways(START >> fork >> END, rules=[GUARDED]) == [
        "START -> each/inner/send -> each/inner/search, and at the same time each/inner/send"
    ]


def test_rules_are_part_of_the_strategy():
    """Copies have them. A rule of a subgraph is about each execution of it; it does not show in pictures, and runs stay the same."""
    judge = step("judge")
    paths = [START >> judge, judge.on("a") >> search >> END, judge >> send >> END]
    plain, ruled = Strategy("route", *paths), Strategy("route", *paths, rules=[APART])
    assert (plain.path_rules, ruled.path_rules) == ((), (APART,))
    for copy in (ruled.named("x"), ruled.using(max_turns=3), ruled.retry(attempts=1), ruled.timeout(3)):
        assert copy.path_rules == (APART,)
    assert ruled.on(str).rules[0].label == "on str"
    assert ruled.to_mermaid() == plain.to_mermaid()
    assert ruled.to_svg() == plain.to_svg()
    assert ruled.outline == plain.outline
    again = Strategy("again", START >> ruled, ruled.when(bool) >> ruled, ruled.otherwise() >> END)
    assert not again.path_rules
    assert ways(START >> ruled, ruled.when(bool) >> ruled, ruled.otherwise() >> END, rules=[APART]) == [
        "START -> route/judge -[on 'a']-> route/search -[route when bool]-> route/judge -> route/send"
    ]


def test_a_rule_of_something_else_is_refused():
    """What is no node, START and END, and declarations that are named twice."""
    outlet: Any = search.on(str)
    for wrong in (lambda: precedes(START, send), lambda: guarded(search, by=moderate, before=END)):
        with pytest.raises(TypeError, match=r"names nodes, and every run has (START|END); name a node"):
            wrong()
    for value in (outlet, None, 3, a_tool.function):
        with pytest.raises(TypeError, match=r"precedes\(\) names nodes, taps, strategies and tools, or paths "):
            precedes(value, send)
    for wrong in (
        lambda: precedes(send, send),
        lambda: precedes(send, send.named("again").retry(attempts=2)),
        lambda: never_together(a_tool, replace(a_tool, name="again")),
        lambda: guarded("a", by="b", before="a"),
        lambda: never_together(send, search, send),
    ):
        with pytest.raises(ValueError, match=r"names '\w+' twice; name different nodes"):
            wrong()
    with pytest.raises(ValueError, match=r"^never_together\(send\) needs at least two nodes$"):
        never_together(send)
    for rules in ([send], APPROVED, ["precedes(a, b)"]):
        with pytest.raises(TypeError, match=r"rules= is a list of rules, such as \[precedes\(approve, send\)\]"):
            problems(START >> send >> END, rules=rules)


async def work(ctx: Any, value: str) -> str:
    return value


async def other_work(ctx: Any, value: str) -> str:
    return value


class Desk:
    async def work(self, ctx: Any, value: str) -> str:
        return value


DESK = Desk()
PAY = node(work)
DISGUISES: dict[str, Any] = {
    "a name": PAY.named("pay_2"),
    "a retry": PAY.retry(attempts=3),
    "a time limit": PAY.timeout(5),
    "a cache": PAY.cached(),
    "all of them": PAY.retry(attempts=3).named("pay_2").timeout(5).cached().named("pay_3"),
    "decorated again": node(name="pay_2")(work),
    "made of its function": Node(PAY.function, name="pay_2"),
    "in a subgraph": Strategy("mail", START >> PAY.named("x") >> END),
    "in a subgraph of a subgraph": Strategy("a", START >> Strategy("b", START >> PAY.retry(attempts=2) >> END) >> END),
    "in a branch": parallel(PAY.named("x"), step("other")),
    "in a race": race(step("other"), PAY.timeout(3)),
    "for each item": each(PAY.named("x"), name="all"),
    "as a copied subgraph": Strategy("mail", START >> PAY >> END).named("post").retry(attempts=2).using(max_turns=1),
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_copy_is_the_node_that_it_descends_from(disguise: str):
    """Whatever name and policies it has, and wherever it is: the rule is about its declaration."""
    pay = DISGUISES[disguise]
    for rules in ([precedes(approve, PAY)], [precedes(approve, PAY.named("other").retry(attempts=2))]):
        [found] = ways(START >> pay >> approve >> END, rules=rules)
        assert found.startswith("START -> ")
        assert not problems(START >> approve.named("ok") >> pay >> END, rules=rules)


NAMESAKES: dict[str, Any] = {
    "another function": node(name="approve")(other_work),
    "another call of a factory": ask_human("Your name?", str, name="approve"),
    "another strategy of the same nodes": Strategy("approve", START >> step("x") >> END),
    "another fork of the same nodes": parallel(step("x"), name="approve"),
    "another node of a factory of users": step("approve"),
}
ORIGINALS: dict[str, Any] = {
    "another function": node(name="approve")(work),
    "another call of a factory": ask_human("Send it?", str, name="approve"),
    "another strategy of the same nodes": Strategy("approve", START >> step("x") >> END),
    "another fork of the same nodes": parallel(step("x"), name="approve"),
    "another node of a factory of users": step("approve"),
}


@pytest.mark.parametrize("kind", NAMESAKES)
def test_another_declaration_of_the_same_name_does_not_count(kind: str):
    """A rule about one of them is not satisfied by the other, which only has its name."""
    wanted, given = ORIGINALS[kind], NAMESAKES[kind]
    assert ways(START >> given >> send >> wanted.named("second") >> END, rules=[precedes(wanted, send)]) == [
        "START -> approve -> send"
    ]
    assert wanted.declaration.name != given.declaration.name or kind != "another call of a factory"


def test_a_method_is_one_declaration_for_each_object():
    """It is another object each time that it is looked up, and the same function."""
    assert node(DESK.work).declaration.covers(node(DESK.work).declaration)
    assert not node(DESK.work).declaration.covers(node(Desk().work).declaration)


def test_a_path_means_one_place():
    """A rule that names a path is not about other places of the same declaration."""
    assert not problems(START >> send >> approve >> send.named("later") >> END, rules=[precedes("approve", "later")])
    assert ways(START >> send >> approve >> send.named("later") >> END, rules=[precedes("approve", send)]) == [
        "START -> send"
    ]


def test_the_names_of_declarations_are_the_same_in_every_process():
    """What a factory makes is told apart by its name and its texts, and by numbers otherwise. No name says where the code is."""
    question = ask_human("B?", str, name="b")
    mail = Strategy(
        "mail", START >> PAY.named("x") >> ask_human("A?", str) >> question >> PAY >> parallel(step("y")) >> END
    )
    names = mail.declarations
    assert names["x"] == names["work"] == snapshot("work:0374c47a3328")
    assert names["b"] == snapshot("b:1f950079682c")
    assert not any("graphagent" in name or "test_rules" in name for name in names.values())
    assert list(names) == [path for path, _ in mail.walk()]
    again = Strategy("again", START >> step("z") >> ask_human("B?", str, name="b") >> END).declarations
    assert again["b"] == names["b"]
    one, other = step("same"), step("same").named("other")
    twins = Strategy("twins", START >> one >> other >> one.named("third") >> END).declarations
    assert twins["third"] == twins["same"]
    assert twins["other"] == f"{twins['same']}#2"


@tool
def a_tool(text: str) -> str:
    """Do something."""
    return text


def test_a_node_that_is_not_in_the_strategy():
    """The problem lists what is there, and finds nodes of the name and in subgraphs; a place that is named twice is one, too."""
    mail = Strategy("mail", START >> step("approve") >> send >> END)
    assert problems(
        START >> mail >> parallel(search, each(moderate)) >> END,
        rules=[APPROVED, precedes("send", "parallel"), precedes("mail", "nothing"), precedes(send, "mail/send")],
    ) == snapshot(
        [
            "'approve': the rule precedes(approve, send) names it, and it is not in the strategy; the node at 'mail/approve' is declared elsewhere, and no copy of it: name that node, or its path (there are: 'mail', 'mail/approve', 'mail/send', 'parallel', 'parallel/0/search', 'parallel/1/each', 'parallel/1/each/moderate')",
            "'send': the rule precedes(send, parallel) names it, and it is not in the strategy; name it by its whole path, 'mail/send' (there are: 'mail', 'mail/approve', 'mail/send', 'parallel', 'parallel/0/search', 'parallel/1/each', 'parallel/1/each/moderate')",
            "'nothing': the rule precedes(mail, nothing) names it, and it is not in the strategy (there are: 'mail', 'mail/approve', 'mail/send', 'parallel', 'parallel/0/search', 'parallel/1/each', 'parallel/1/each/moderate')",
            "'mail/send': the rule precedes(send, mail/send) names it twice; name different nodes",
        ]
    )
    many = steps(" ".join(f"n{number}" for number in range(30)))
    path: Any = START >> many[0]
    for one in many[1:]:
        path = path >> one
    [problem] = problems(path >> END, rules=[precedes("x", "n1")])
    assert problem.endswith("'n18', 'n19', …)")


@pytest.mark.parametrize(
    "rules", [[], [precedes("n1", "n2"), never_together("n3", "n4", "n5"), guarded("n1", by="n2", before="n9")]]
)
def test_the_proof_grows_with_the_strategy(rules: list[PathRule]):
    """Ten times the nodes take about ten times the work, with rules and without them."""

    def made(size: int) -> int:
        nodes = steps(" ".join(f"n{number}" for number in range(size)))
        paths: list[Any] = [START >> nodes[0]]
        for one, other in itertools.pairwise(nodes):
            paths += [one.when(bool) >> nodes[0], one.on_error(OSError) >> nodes[-1], one.otherwise() >> other]
        return calls(lambda: problems(*paths, nodes[-1] >> END, rules=rules))

    assert made(1000) < 15 * made(100)


@given(st.data(), st.booleans(), st.booleans())
@settings(max_examples=examples(1500, 150), suppress_health_check=[HealthCheck.filter_too_much])
def test_the_proof_agrees_with_every_run_there_is(data: st.DataObject, tried_again: bool, refused: bool):
    """A rule is refused just if some run breaks it, and the path that is drawn has as many nodes as the shortest such run.

    The strategy may be tried again as a whole, and its answers may be refused.
    """
    leaves = [*steps("a b c"), Node(nothing, name="d", asks_model=True)]
    strategy = data.draw(small_strategies(leaves))
    asking = {path.partition("/")[0] for path, element in strategy.walk() if element.asks_model and refused}
    asking -= {name for name in asking if not fits(str, strategy.elements_by_name[name].input_type)}
    found = patterns(data.draw(rules_of(strategy)), list(strategy.walk()))
    assert isinstance(found, list)
    whole = strategy.retry(attempts=2) if tried_again else strategy
    for pattern in found:
        way = shortest_break(strategy.edges, pattern, tried_again=tried_again, refused=refused)
        places = (pattern.first, pattern.between, pattern.then)
        count = shortest(whole, *places, at_start=pattern.at_start, asking=asking, most=20_000)
        assume(count != -1)  # there are too many states
        assert (None if way is None else way.cost) == count, str(way)
