"""The names of notes that other rooms of the package may import, besides those that `graphagent.memory.notes` exports for users."""

from __future__ import annotations

from graphagent.memory.notes._owner import all_versions as all_versions
from graphagent.memory.notes._owner import forget_owner as forget_owner
from graphagent.memory.notes._owner import has_notes as has_notes
from graphagent.memory.notes._owner import notes_of as notes_of
from graphagent.memory.notes._owner import store_of as store_of
from graphagent.memory.notes._scopes import ROOT as ROOT
from graphagent.memory.notes._scopes import path_of as path_of
from graphagent.memory.notes._validation import name as name
from graphagent.memory.notes.index._storage import NOTES as NOTES
from graphagent.memory.notes.index._storage import room_of as room_of
from graphagent.memory.notes.index._storage import to_json as to_json
from graphagent.memory.notes.index._words import with_spaces as with_spaces
from graphagent.memory.notes.write._import import Collected as Collected
from graphagent.memory.notes.write._import import Imported as Imported
