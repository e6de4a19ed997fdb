"""Limits of an owner to questions for its counts, as options of `market value join`."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._parser import Parser

if TYPE_CHECKING:
    from jaxsel.market import PrivacyBudget

_LIMITS = ("min_owners", "max_epsilon", "max_delta", "min_colluding", "max_val")


def add_limits(parser: Parser) -> None:
    """Add the options, with strict defaults."""
    add = parser.add_argument
    add(
        "--min-owners",
        type=int,
        default=3,
        metavar="N",
        help="refuse if fewer owners may be left in the end (default: 3)",
    )
    add(
        "--max-epsilon",
        type=float,
        default=1.0,
        metavar="E",
        help="refuse a larger epsilon, and exact sums unless this is inf (default: 1)",
    )
    add(
        "--max-delta",
        type=float,
        metavar="D",
        help="refuse a larger delta (default: 1e-5, or n^-1.1 of n points if smaller)",
    )
    add(
        "--min-colluding",
        type=int,
        default=1,
        metavar="N",
        help="refuse noise that suffices against fewer owners who pool what they know "
        "(default: 1)",
    )
    add(
        "--max-val",
        type=int,
        default=10_000,
        metavar="N",
        help="refuse more validation points (default: 10000)",
    )
    add(
        "--budget",
        metavar="FILE.json",
        help="record of all questions that the owner joined, kept as long as DATA "
        "(default: OWNER_budget.json beside STATE)",
    )
    add(
        "--total-epsilon",
        type=float,
        metavar="E",
        help="refuse if the epsilons of all questions in it would exceed this "
        "(default: --max-epsilon)",
    )
    add(
        "--total-delta",
        type=float,
        default=1e-5,
        metavar="D",
        help="the same of deltas (default: 1e-5)",
    )


def limits_of(
    args: argparse.Namespace, state: Path
) -> tuple[dict[str, Any], PrivacyBudget]:
    """Return the limits as arguments of `ValueOwner`, and the budget, from the options.

    Options that are infinite become None in `args`, as JSON has no such number.

    Args:
        args: The options.
        state: The owner's own file, beside which the budget lies by default.
    """
    from jaxsel.market import PrivacyBudget

    if args.budget is None:
        name = re.sub(r"[^\w-]", "_", args.owner)
        args.budget = str(state.with_name(f"{name}_budget.json"))
    if args.total_epsilon is None:
        args.total_epsilon = args.max_epsilon
    for name in ("max_epsilon", "total_epsilon"):
        if getattr(args, name) == math.inf:
            setattr(args, name, None)
    budget = PrivacyBudget(
        args.budget, epsilon=args.total_epsilon, delta=args.total_delta
    )
    return {name: getattr(args, name) for name in _LIMITS}, budget
