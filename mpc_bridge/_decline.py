"""Tell waiting peers that this party's run.toml is invalid."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from typing import Any

from ._config import Config
from ._handshake import RANKS
from ._read_config import config_of, read_document
from ._session import Role, meeting_of
from .engines import engine_of

_FIELD = re.compile(
    r"(?:^|[ :])((?:session|phases|appraisal|parties|network|model_owner|data_owner|"
    r"third_party)(?:\[\d+\])?(?:\.[a-z_]+(?:\[\d+\])?)*)"
)
_TO_MEET = ("name", "engine", "rendezvous", "certificates", "listen")


def decline(role: Role, path: str | Path, error: Exception) -> None:
    """Tell parties that wait for this one that its configuration can't be used.

    Takes some seconds, and does what it can: it needs SPU's link, the addresses and
    this party's certificates. The others hear the name of the field, and nothing else.

    Args:
        role: Of this party.
        path: Its run.toml.
        error: Why it can't be used.
    """
    with contextlib.suppress(Exception):
        config, rank = read_meeting(path, role.replace("-", "_")), RANKS[role]
        engine = engine_of(config.session.engine)
        if not engine.own_process or rank not in engine.roles:
            return
        field = _FIELD.search(str(error))
        reason = "its configuration can't be used"
        reason += f" ({field[1]})" if field else ""
        meeting = meeting_of(config, rank, None, False)
        with engine.connect(rank, dataclasses.replace(meeting, declines=reason)):
            pass


def read_meeting(path: str | Path, role: str) -> Config:
    """Read the fields of a run.toml by which a role meets the others, and no more.

    Args:
        path: The file.
        role: "model_owner", "data_owner" or "third_party".

    Raises:
        ConfigError: If it is no TOML, or one of these fields is missing or wrong.
        OSError: If it can't be read.
    """
    path = Path(path)
    document = read_document(path)
    session = {"seed": 0, "samples": 1} | _fields(document, "session")
    part: dict[str, Any] = {"output": "."} | _fields(document, role)
    empty = {"model_owner": "weights", "data_owner": "inputs"}.get(role)
    part |= {empty: []} if empty else {}
    reduced: dict[str, Any] = {"session": session, role: part}
    if "parties" in document:
        reduced["parties"] = document["parties"]
    return config_of(reduced, path.resolve().parent)


def _fields(document: dict[str, Any], table: str) -> dict[str, Any]:
    fields = document.get(table)
    fields = fields if isinstance(fields, dict) else {}
    return {name: fields[name] for name in _TO_MEET if name in fields}
