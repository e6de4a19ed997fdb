"""Roles as processes that a test can watch, kill, cut off and start again."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from ports import free_address
from sessions import config_of
from waits import PATIENCE, until

from mpc_bridge._certs import make_all
from mpc_bridge._config import Parties, Place, ThirdParty

NAMES = ("Trainer", "Clinic", "Helper")
ROLES = ("model-owner", "data-owner", "third-party")


class Role:
    """A process, what it says and when.

    Attributes:
        lines: Of standard error and output so far, with the time of each.
    """

    def __init__(self, command, **environment):
        self.lines = []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ
            | {"PYTHONPATH": str(Path(__file__).parents[2])}
            | environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    @property
    def said(self):
        return "".join(line for _, line in self.lines)

    @property
    def last(self):
        return self.said.strip().splitlines()[-1]

    @property
    def status(self):
        return self.process.poll()

    def waits_since(self):
        """Return when it said that it waits for the others; it has started by then."""
        waiting = lambda: [at for at, line in self.lines if ": waiting for " in line]
        about = lambda: f"it waits for the others: {self.said}"
        return until(waiting, about, alive=lambda: self.status is None)[0]

    def wait(self, limit=PATIENCE):
        """Wait for its end; return the status and when it ended."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running, has said {self.said!r}") from None
        at = time.monotonic()
        self._reader.join(PATIENCE)
        return status, at

    def close(self):
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        self.process.stdout.close()


class Session:
    """A session of which each role has its own run.toml.

    Args:
        files: Of the fixture `files`.
        folder: For certificates, outputs and each run.toml.
        engine: Its name.
        changes: Of `config_of`.
    """

    def __init__(self, files, folder, engine, **changes):
        self.ranks = range(2 if engine == "spu-cheetah" else 3)
        names = [NAMES[rank] for rank in self.ranks]
        parties, own_parts = None, [{}] * 3
        made = config_of(files, "", engine=engine, **{"timeout": 20.0} | changes)
        self.folder, self.outputs = folder, [folder / role for role in ROLES]
        self.addresses = [free_address() for _ in self.ranks]
        if engine == "crypten":
            there = f"tcp://{self.addresses[0]}"
            session = dataclasses.replace(made.session, rendezvous=there)
            made = dataclasses.replace(made, session=session)
        else:
            self.folders = make_all(folder / "certs", names, days=1)
            own_parts = [{"certificates": self.folders[name]} for name in names]
            each = zip(ROLES, names, self.addresses, strict=False)
            parties = Parties(
                **{
                    role.replace("-", "_"): Place(name=name, address=address)
                    for role, name, address in each
                }
            )
        parts = {
            "model_owner": made.model_owner,
            "data_owner": made.data_owner,
            "third_party": ThirdParty(output=folder) if parties else None,
        }
        self.paths = []
        for rank in self.ranks:
            role = ROLES[rank].replace("-", "_")
            part = parts[role] and dataclasses.replace(
                parts[role], output=self.outputs[rank], **own_parts[rank]
            )
            own = {"model_owner": None, "data_owner": None, "third_party": None}
            config = dataclasses.replace(made, parties=parties, **own | {role: part})
            self.paths.append(folder / f"{role}.toml")
            config.write(self.paths[-1])

    def edit(self, rank, old, new):
        """Change the run.toml of one role."""
        text = self.paths[rank].read_text()
        assert old in text
        self.paths[rank].write_text(text.replace(old, new))

    def start(self, rank, *options):
        command = [sys.executable, "-m", "mpc_bridge", ROLES[rank], "--config"]
        return Role([*command, self.paths[rank], *options])

    def entries(self, rank):
        return len([*(self.outputs[rank] / "unfinished").glob("*.entry")])


@contextlib.contextmanager
def running(session, options=((), (), ())):
    """Start all roles of a session, the third party first, and leave none behind.

    Yields:
        The roles, in the order of `session.ranks`.
    """
    roles = {}
    try:
        if 2 in session.ranks:
            roles[2] = session.start(2, *options[2])
            roles[2].waits_since()
        for rank in session.ranks:
            if rank not in roles:
                roles[rank] = session.start(rank, *options[rank])
        yield [roles[rank] for rank in session.ranks]
    finally:
        for role in roles.values():
            role.close()
