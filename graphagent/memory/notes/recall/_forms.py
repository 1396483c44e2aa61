"""Forms of English words that Porter's stemmer does not bring together: `swam` and `swum` of `swim`, `mice` of `mouse`, `tries` of `try`.

A word of a question that is in one of these groups is searched in all forms of the group. Forms with the same stem as one of the group,
such as `swims` and `swimming`, need not be listed. A form of two words, such as `found` of `find` and of `founded`, finds texts with
either: which of these comes first is decided by the other words of the question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.memory.notes.index._tokens import Tokens

GROUPS = tuple(
    tuple(group.split())
    for group in """
    add added, alias aliases, analysis analyses, arise arose arisen, awake awoke awoken, bear bore born, beat beaten, become became,
    begin began begun, bend bent, bias biases, bind bound, bite bit bitten, bleed bled, blow blew blown, bonus bonuses,
    break broke broken, breed bred, bring brought, build built, burn burnt, bus buses, buy bought, calf calves, campus campuses,
    catch caught, child children, choose chose chosen, cling clung, come came, creep crept, crisis crises, cry cries, deal dealt,
    diagnosis diagnoses, die dies dying, dig dug, dive dove, draw drew drawn, dream dreamt, drink drank drunk, drive drove driven,
    dry dries, eat ate eaten, embed embedded, exceed exceeded, experience experienced, fall fell fallen, feed fed, feel felt,
    fight fought, find found, flee fled, fling flung, fly flies flew flown, focus focused, foot feet, forbid forbade forbidden,
    forget forgot forgotten, forgive forgave forgiven, free freed, freeze froze frozen, fry fries, gas gases, get got gotten,
    give gave given, glue glued, go went gone, goose geese, grind ground, grow grew grown, half halves, hang hung, hear heard,
    hide hid hidden, hold held, hypothesis hypotheses, index indices, keep kept, kneel knelt, knife knives, know knew known, lay laid,
    lead led, leaf leaves, lean leant, leap leapt, learn learnt, leave left, lend lent, lens lenses, lie lies lying lay lain,
    life lives, light lit, loaf loaves, lose lost, louse lice, make made, man men, matrix matrices, mean meant, meet met,
    mistake mistook mistaken, mouse mice, mow mown, overcome overcame, ox oxen, pay paid, person people, pie pies, proceed proceeded,
    programme programming, prove proven, queue queued, reference referenced, ride rode ridden, ring rang rung, rise rose risen, run ran,
    say said, scarf scarves, see saw seen, seek sought, sell sold, send sent, sew sewn, shake shook shaken, shear shorn, shelf shelves,
    shine shone, shoot shot, show shown, shrink shrank shrunk, sing sang sung, sink sank sunk, sit sat, sky skies, sleep slept,
    slide slid, smell smelt, sow sown, speak spoke spoken, speed sped, spell spelt, spend spent, spill spilt, spin spun, spit spat,
    spoil spoilt, spring sprang sprung, spy spies, stand stood, status statuses, steal stole stolen, stick stuck, sting stung,
    stink stank stunk, strike struck stricken, strive strove striven, stuff stuffed, swear swore sworn, sweep swept, swell swollen,
    swim swam swum, swing swung, take took taken, teach taught, tear tore torn, tell told, thief thieves, think thought,
    throw threw thrown, tie ties tying, tooth teeth, try tries, understand understood, undertake undertook undertaken, vertex vertices,
    virus viruses, wake woke woken, wear wore worn, weave wove woven, weep wept, wife wives, win won, wind wound,
    withdraw withdrew withdrawn, wolf wolves, woman women, write wrote written
    """.split(",")  # noqa: SIM905  a list of so many words is read more easily
)
"""The groups in alphabetical order, each from the form that dictionaries list. Each form has another stem."""

_by_stem: dict[str, Mapping[str, str]] = {}


def other_forms(tokens: Tokens) -> Mapping[str, Mapping[str, str]]:
    """Return, by the stem of a word, the stems of its other forms, each with the form itself.

    Args:
        tokens: Of any index; all of them have the same stemmer.
    """
    if not _by_stem:
        stems = tokens.stems_of([form for group in GROUPS for form in group])
        found: dict[str, dict[str, str]] = {}
        for group in GROUPS:
            for form in group:
                found.setdefault(stems[form], {}).update((stems[other], other) for other in group if other != form)
        _by_stem.update(found)  # at once, since other threads may read it
    return _by_stem
