"""The ready-made nodes."""

from __future__ import annotations

from graphagent.nodes._choices import choose as choose
from graphagent.nodes._choices import llm_choices as llm_choices
from graphagent.nodes._facts import auto_detect_facts as auto_detect_facts
from graphagent.nodes._facts import load_all_facts as load_all_facts
from graphagent.nodes._facts import load_facts as load_facts
from graphagent.nodes._facts import save_facts as save_facts
from graphagent.nodes._history import compress_history as compress_history
from graphagent.nodes._human import Approved as Approved
from graphagent.nodes._human import Denied as Denied
from graphagent.nodes._human import approval as approval
from graphagent.nodes._human import ask_human as ask_human
from graphagent.nodes._model import Prompt as Prompt
from graphagent.nodes._model import llm_request as llm_request
from graphagent.nodes._model import passthrough as passthrough
from graphagent.nodes._model import update_prompt as update_prompt
from graphagent.nodes._moderate import Flagged as Flagged
from graphagent.nodes._moderate import moderate as moderate
from graphagent.nodes._notes import recall_notes as recall_notes
from graphagent.nodes._notes import remember_notes as remember_notes
from graphagent.nodes._sleep import sleep as sleep
from graphagent.nodes._task import task as task
from graphagent.nodes._tools import execute_tools as execute_tools
from graphagent.nodes._verify import Accepted as Accepted
from graphagent.nodes._verify import Rejected as Rejected
from graphagent.nodes._verify import verify as verify
