"""Questions about a table, answered by a model that writes SQL: smolagents' `text_to_sql.py`.

python examples/smolagents/text_to_sql.py
python examples/smolagents/text_to_sql.py --model llama3.2 --base-url http://localhost:11434/v1
"""

from __future__ import annotations

import argparse
import sqlite3

from graphagent import Agent, tool
from graphagent.errors import ToolError
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

RECEIPTS = [("Alan Payne", 12.06, 1.20), ("Alex Mason", 23.86, 0.24), ("Woodrow Wilson", 53.43, 5.43)]


class Till:
    """A table of receipts. It is opened anew for each query, since a tool may be called in any thread, and is only read."""

    def __init__(self) -> None:
        self.script = "CREATE TABLE receipts (customer TEXT, price REAL, tip REAL)"

    @tool
    def query(self, sql: str) -> list[tuple[str | float, ...]]:
        """Run a query in SQLite on the table receipts(customer TEXT, price REAL, tip REAL), and return its rows.

        Args:
            sql: One SELECT statement.
        """
        with sqlite3.connect(":memory:") as database:
            database.execute(self.script)
            database.executemany("INSERT INTO receipts VALUES (?, ?, ?)", RECEIPTS)
            database.execute("PRAGMA query_only = on")
            try:
                return database.execute(sql).fetchmany(50)
            except sqlite3.Error as error:  # the model sees the message, and can mend its query
                raise ToolError(str(error)) from error


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model")
parser.add_argument("--base-url")
options = parser.parse_args()

script = [
    ToolCall("query", {"sql": "SELECT client FROM receipts ORDER BY price DESC LIMIT 1"}),  # the column does not exist
    ToolCall("query", {"sql": "SELECT customer FROM receipts ORDER BY price DESC LIMIT 1"}),
    "Woodrow Wilson had the most expensive receipt.",
]
model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)
agent = Agent(single_run(), model=model, tools=[Till().query])
agent.run_sync("Which customer had the most expensive receipt?").replay()
