"""Rules over paths, proven and checked. Strategies do it: `Strategy(…, rules=[…])`."""

from __future__ import annotations
