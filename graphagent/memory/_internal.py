"""Names of this room that other rooms of the package may import, besides the public names of its door."""

from __future__ import annotations

from graphagent.memory._blocks import FORGOTTEN as FORGOTTEN
from graphagent.memory._expiry import checked_age as checked_age
from graphagent.memory.facts._extraction import as_compared as as_compared
from graphagent.memory.facts._older import forget_older as forget_older
from graphagent.memory.facts._older import older_facts as older_facts
from graphagent.memory.facts._references import name_of as name_of
from graphagent.memory.facts._references import references as references
from graphagent.memory.facts._store_items import facts_of as facts_of
from graphagent.memory.facts._store_items import is_fact as is_fact
from graphagent.memory.steps._dump import plain as plain
from graphagent.memory.steps._note_references import note_name as note_name
from graphagent.memory.steps._note_references import note_references as note_references
from graphagent.memory.steps._render import step_text as step_text
from graphagent.memory.steps._render import stopped_text as stopped_text
from graphagent.memory.steps._types import MessageStep as MessageStep
from graphagent.memory.transcript._again import known_in as known_in
from graphagent.memory.transcript._again import known_of as known_of
from graphagent.memory.transcript._again import show_again as show_again
from graphagent.memory.transcript._fields import FieldError as FieldError
from graphagent.memory.transcript._fields import Source as Source
from graphagent.memory.transcript._fields import check_step as check_step
from graphagent.memory.transcript._fields import read_step as read_step
from graphagent.memory.transcript._fields import write_step as write_step
from graphagent.memory.transcript._memory import Detached as Detached
from graphagent.memory.transcript._memory import RunMemory as RunMemory
from graphagent.memory.transcript._prompt import Prompt as Prompt
from graphagent.memory.transcript._prompt import Versions as Versions
from graphagent.memory.transcript._transcript import Edit as Edit
from graphagent.memory.transcript._transcript import Item as Item
from graphagent.memory.transcript._transcript import Transcript as Transcript
