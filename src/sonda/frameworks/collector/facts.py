"""Facts as the files of the collector hold them: JSON objects in UTF-8."""

from __future__ import annotations

import json


def encode_fact(fact: object) -> bytes:
    """A fact in one line. Bytes of a file name that are no text become `?`: a reader of JSON would refuse them."""
    return json.dumps(fact, default=str, ensure_ascii=False).encode(errors="replace")
