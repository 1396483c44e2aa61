"""`python -m graphagent` is `graphagent`."""

from __future__ import annotations

from graphagent.cli import main

if __name__ == "__main__":
    main()
