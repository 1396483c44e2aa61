"""The names of this room that other rooms of the package may import, besides those that its door exports for users."""

from __future__ import annotations

from graphagent.memory.facts._feature import FactUse as FactUse
from graphagent.memory.facts._references import Name as Name
from graphagent.memory.facts._references import name_of as name_of
from graphagent.memory.facts._references import references as references
from graphagent.memory.steps._dump import plain as plain
from graphagent.memory.steps._json import StepReader as StepReader
from graphagent.memory.steps._json import StepWriter as StepWriter
from graphagent.memory.steps._json import message_hash as message_hash
from graphagent.memory.steps._note_references import NoteName as NoteName
from graphagent.memory.steps._note_references import note_name as note_name
from graphagent.memory.steps._note_references import note_references as note_references
from graphagent.memory.steps._prompt_delta import SentPrompt as SentPrompt
from graphagent.memory.steps._render import step_text as step_text
from graphagent.memory.steps._transcript import Added as Added
from graphagent.memory.steps._transcript import Change as Change
from graphagent.memory.steps._transcript import Edited as Edited
from graphagent.memory.steps._transcript import Lowered as Lowered
from graphagent.memory.steps._transcript import Opened as Opened
from graphagent.memory.steps._transcript import Replaced as Replaced
from graphagent.memory.steps._transcript import Shut as Shut
from graphagent.memory.steps._validation import check_parts as check_parts
