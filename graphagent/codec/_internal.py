"""The names of this room that other rooms of the package may import."""

from __future__ import annotations

from graphagent.codec._annotations import cached as cached
from graphagent.codec._annotations import hints as hints
from graphagent.codec._blobs import Blobs as Blobs
from graphagent.codec._blobs import HeldBlobs as HeldBlobs
from graphagent.codec._blobs import hash_of as hash_of
from graphagent.codec._dataclasses import DataclassCodec as DataclassCodec
from graphagent.codec._errors import DecodeError as DecodeError
from graphagent.codec._errors import as_int as as_int
from graphagent.codec._errors import as_list as as_list
from graphagent.codec._errors import as_str as as_str
from graphagent.codec._errors import readable as readable
from graphagent.codec._typed_objects import defaults_of as defaults_of
from graphagent.codec._typed_objects import made as made
from graphagent.codec._typed_objects import outline as outline
from graphagent.codec._values import Json as Json
from graphagent.codec._values import check_type as check_type
from graphagent.codec._values import decode as decode
from graphagent.codec._values import encode as encode
from graphagent.codec._values import item_data as item_data
from graphagent.codec._values import message_json as message_json
from graphagent.codec._values import read_message as read_message
from graphagent.codec._values import read_usage as read_usage
from graphagent.codec._values import undeclared as undeclared
from graphagent.codec._values import usage_json as usage_json
