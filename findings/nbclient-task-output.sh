#!/usr/bin/env bash
# A notebook that is executed from the command line, as by `nbconvert --execute`, begins a task in one cell and awaits it in the next.
# Guess: what the task prints while it is awaited is in the notebook, under one of the two cells.
# What happens: it is in neither. ipykernel 7 sends output of a task as that of the cell where the task began, and nbclient, which has finished that
#   cell, drops it, without a warning: print, logging, display, and updates of what is displayed, so that a bar of progress stays where
#   it was. The same lines in a thread appear under the second cell, and a coroutine that is awaited without a task too.
# For users: what agents tell in the background is missing from notebooks that are executed in CI or for a report, and a bar of progress says
#   that nothing was done. Await a task in the cell that begins it, or return what is to be seen.
# In graphagent: `blocking(agent).run(…)` and `await agent.run(…)`, the ways of notebooks in docs/start.md, end in the cell that begins them.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nbclient==0.11.0 ipykernel==7.4.0 ipython==9.18.1
cd "$folder"
export PATH="$folder/venv/bin:$PATH" IPYTHONDIR="$folder" JUPYTER_CONFIG_DIR="$folder" JUPYTER_RUNTIME_DIR="$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import nbformat
from nbclient import NotebookClient

print(*(f"{name} {version(name)}" for name in ("nbclient", "ipykernel")))
print("guess: each has 'worked' and 'done'")

START = """
import asyncio, threading, time
bar = display("0 %", display_id=True)
def work():
    bar.update("100 %")
    print("worked")
async def work_later():
    await asyncio.sleep(0.5)
    work()
def work_in_thread():
    time.sleep(0.5)
    work()
"""


def texts(begin, wait):
    """Return what is under the two cells that begin and await something."""
    cells = [nbformat.v4.new_code_cell(each) for each in (START + begin, wait + '\nprint("done")')]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    return [output["data"]["text/plain"] if "data" in output else output["text"] for output in outputs]


compare("a task", texts("task = asyncio.create_task(work_later())", "await task"), ["'0 %'", "done\n"])
compare("a coroutine", texts("later = work_later()", "await later"), ["'100 %'", "worked\ndone\n"])
compare(
    "a thread",
    texts("thread = threading.Thread(target=work_in_thread); thread.start()", "thread.join()"),
    ["'100 %'", "worked\ndone\n"],
)
PYTHON
venv/bin/python program.py 2>errors || { cat errors; exit 1; }
