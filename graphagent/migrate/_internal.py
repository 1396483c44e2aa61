"""What the command needs of files of other libraries, and users do not."""

from __future__ import annotations

from graphagent.migrate._records import origin_of as origin_of
