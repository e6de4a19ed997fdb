"""Connecting CrypTen's parties: communicator, dealer, and explained errors."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

from mpc_bridge._handshake import ROLES, SessionError
from mpc_bridge.engines._face import DATA_OWNER, MODEL_OWNER, THIRD_PARTY, Meeting

from ._compat import import_crypten


@contextlib.contextmanager
def connected(rank: int, meeting: Meeting) -> Iterator[Any]:
    """Yield CrypTen's communicator among all roles, and take it down afterwards."""
    crypten = import_crypten()
    import torch.distributed as dist
    from crypten.config import cfg

    from ._meet import URL, loopback_interface, store_of

    settings = {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "RENDEZVOUS": URL,
        "DISTRIBUTED_BACKEND": "gloo",
    }
    interface = loopback_interface(meeting.rendezvous or "")
    if interface is not None:
        settings["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", interface)
    first_party = meeting.test_only_first_party
    hello = {**meeting.hello, "--test-only-first-party": first_party}
    owners = MODEL_OWNER, DATA_OWNER
    ranks = owners if first_party else (*owners, THIRD_PARTY)
    before = {name: os.environ.get(name) for name in settings}
    provider = cfg.mpc.provider
    cfg.mpc.provider = "TFP" if first_party else "TTP"
    cfg.communicator.verbose = True
    os.environ.update(settings)
    try:
        with store_of(rank, ranks, meeting, hello):
            # The third party waits for as long as the owners compute.
            least = meeting.wait if rank == THIRD_PARTY else 0.0
            with _patient(max(least, meeting.timeout)):
                crypten.init()
            yield crypten.communicator.get()
            with contextlib.suppress(RuntimeError):  # the results are written by now
                crypten.uninit()  # tells the third party that this is the end
    finally:
        if dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()
        crypten.communicator.DistributedCommunicator.instance = None
        crypten.mpc.provider.ttp_provider.TTPClient.uninit()
        cfg.mpc.provider = provider
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _patient(seconds: float) -> Iterator[None]:
    """Limit every wait in the groups that CrypTen makes: it has no setting for that."""
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=seconds)
    originals = dist.init_process_group, dist.new_group
    dist.init_process_group = functools.partial(originals[0], timeout=limit)
    dist.new_group = functools.partial(originals[1], timeout=limit)
    try:
        yield
    finally:
        dist.init_process_group, dist.new_group = originals


def deal(meeting: Meeting) -> None:
    """Serve correlated randomness until the model owner says that it is done.

    Raises:
        SessionError: If the session ended early.
    """
    heard: list[Any] = []
    with connected(THIRD_PARTY, meeting) as communicator:
        from crypten.mpc.provider.ttp_provider import TTPServer

        receive = communicator.recv_obj

        def noted(*args: Any, **kwargs: Any) -> Any:
            heard[:] = [receive(*args, **kwargs)]
            return heard[0]

        communicator.recv_obj = noted
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it would initialise CrypTen, as we did
            TTPServer()  # returns when it is told to, and when it hears no more
        if heard != ["terminate"]:
            raise SessionError(
                f"the {ROLES[MODEL_OWNER]} ended before the session did: see what it "
                "says"
            )


_BROKEN = re.compile(
    r"gloo|Connection|Broken pipe|[Tt]imed? ?out|[Ss]ocket|\bstore\b", re.A
)
_LATE = re.compile(r"[Tt]imed? ?out")


def explain(rank: int, error: BaseException) -> str | None:
    """Explain a transport error to this role; None for any other error."""
    if not isinstance(error, RuntimeError) or not _BROKEN.search(str(error)):
        return None
    other = f"the {ROLES[1 if rank == MODEL_OWNER else 0]}"
    functions = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    if rank != THIRD_PARTY and functions & {"ttp_request", "_setup_generators"}:
        other = f"the {ROLES[THIRD_PARTY]}"
    text = str(error).splitlines()[0]
    if "init_process_group" in functions:
        return f"a role has left the rendezvous before CrypTen was set up: {text}"
    if _LATE.search(text):
        return f"{other} did not answer in time, see `timeout` ({text})"
    return f"{other} is gone, it failed or was ended: see what it says"
