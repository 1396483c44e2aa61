"""Deprecated: the stored form of steps and values is internal, and has no public names any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy

if not TYPE_CHECKING:  # a type checker shall report names that do not exist
    __getattr__ = _lazy(
        __name__,
        moved={
            "Added": "graphagent.memory._internal.Added",
            "Blobs": "graphagent.codec._internal.Blobs",
            "Change": "graphagent.memory._internal.Change",
            "Edited": "graphagent.memory._internal.Edited",
            "HeldBlobs": "graphagent.codec._internal.HeldBlobs",
            "Json": "graphagent.codec._internal.Json",
            "Lowered": "graphagent.memory._internal.Lowered",
            "Name": "graphagent.memory._internal.Name",
            "NoteName": "graphagent.memory._internal.NoteName",
            "Opened": "graphagent.memory._internal.Opened",
            "Replaced": "graphagent.memory._internal.Replaced",
            "Shut": "graphagent.memory._internal.Shut",
            "StepReader": "graphagent.memory._internal.StepReader",
            "StepWriter": "graphagent.memory._internal.StepWriter",
            "Unreadable": "graphagent.codec._internal.DecodeError",
            "check_parts": "graphagent.memory._internal.check_parts",
            "check_type": "graphagent.codec._internal.check_type",
            "decode": "graphagent.codec._internal.decode",
            "encode": "graphagent.codec._internal.encode",
            "hash_of": "graphagent.codec._internal.hash_of",
            "message_json": "graphagent.codec._internal.message_json",
            "name_of": "graphagent.memory._internal.name_of",
            "note_name": "graphagent.memory._internal.note_name",
            "note_references": "graphagent.memory._internal.note_references",
            "plain": "graphagent.memory._internal.plain",
            "read_message": "graphagent.codec._internal.read_message",
            "read_usage": "graphagent.codec._internal.read_usage",
            "references": "graphagent.memory._internal.references",
            "undeclared": "graphagent.codec._internal.undeclared",
            "usage_json": "graphagent.codec._internal.usage_json",
        },
    )
