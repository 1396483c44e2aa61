"""How steps and values are written as JSON data and read again, for whoever keeps them somewhere, such as a journal of runs.

A plain file, since most programs never need it.
"""

from __future__ import annotations

from graphagent.memory._blobs import Blobs as Blobs
from graphagent.memory._blobs import HeldBlobs as HeldBlobs
from graphagent.memory._blobs import hash_of as hash_of
from graphagent.memory._damage import Unreadable as Unreadable
from graphagent.memory._known import Name as Name
from graphagent.memory._known import name_of as name_of
from graphagent.memory._known import references as references
from graphagent.memory._known_notes import NoteName as NoteName
from graphagent.memory._known_notes import note_name as note_name
from graphagent.memory._known_notes import note_references as note_references
from graphagent.memory._plain import plain as plain
from graphagent.memory._run_memory import Added as Added
from graphagent.memory._run_memory import Change as Change
from graphagent.memory._run_memory import Edited as Edited
from graphagent.memory._run_memory import Lowered as Lowered
from graphagent.memory._run_memory import Opened as Opened
from graphagent.memory._run_memory import Replaced as Replaced
from graphagent.memory._run_memory import Shut as Shut
from graphagent.memory._step_json import StepReader as StepReader
from graphagent.memory._step_json import StepWriter as StepWriter
from graphagent.memory._step_parts import check_parts as check_parts
from graphagent.memory._values import Json as Json
from graphagent.memory._values import check_type as check_type
from graphagent.memory._values import decode as decode
from graphagent.memory._values import encode as encode
from graphagent.memory._values import message_json as message_json
from graphagent.memory._values import read_message as read_message
from graphagent.memory._values import read_usage as read_usage
from graphagent.memory._values import undeclared as undeclared
from graphagent.memory._values import usage_json as usage_json
