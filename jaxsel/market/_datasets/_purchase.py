"""Choice of owners to buy from within a budget: by all sets, or step by step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._matching_game import Game

_ROUNDING = 1e-12  # of utilities, which are at most about 1


class Terms(NamedTuple):
    """Limits of a purchase: its cost, and its distance from the best match.

    Attributes:
        prices: Price of each owner, `[n]`.
        budget: The most that they may cost together.
        tol: Share of the best utility that a cheaper set may lose.
    """

    prices: np.ndarray
    budget: float
    tol: float


def buy_exactly(utility: np.ndarray, terms: Terms) -> np.ndarray:
    """Return the cheapest set within `tol` of the best within the budget, `[n]` bool.

    Of equal prices the set that matches better.

    Args:
        utility: Utilities of all sets, `[2^n]`.
        terms: Prices, budget and tolerance.
    """
    cost = np.zeros(1)
    for price in terms.prices:
        cost = np.append(cost, cost + price)
    # Sums of prices such as 0.1 are rounded.
    affordable = cost <= terms.budget * (1 + _ROUNDING)
    best = utility[affordable].max()
    near = affordable & (utility >= (1 - terms.tol) * best - _ROUNDING)
    least = cost[near].min()
    near &= cost <= least * (1 + _ROUNDING)
    chosen = np.flatnonzero(near)[np.argmax(utility[near])]
    return (chosen >> np.arange(len(terms.prices))) & 1 == 1


def buy_greedily(game: Game, terms: Terms) -> np.ndarray:
    """Add owners by gain over price, then drop those that are not needed, `[n]` bool.

    Stops within `tol` of the utility of all owners, or when nothing affordable adds
    to it. A single owner is bought instead where it alone is better.
    """
    n, prices = game.n, terms.prices
    budget = terms.budget * (1 + _ROUNDING)
    alone = game.match(np.eye(n, dtype=bool))[0]
    enough = (1 - terms.tol) * game.match(np.ones((1, n), bool))[0][0]
    bought, utility = np.zeros(n, bool), 0.0
    while utility < enough:
        able = np.flatnonzero(~bought & (prices + prices[bought].sum() <= budget))
        if not len(able):
            break
        gains = game.match(bought | np.eye(n, dtype=bool)[able])[0] - utility
        # Free owners first, the best of them.
        rates = gains / np.maximum(prices[able], _ROUNDING * max(1, prices.max()))
        best = int(np.argmax(rates))
        if gains[best] <= _ROUNDING:
            break
        bought[able[best]] = True
        utility += gains[best]
    single = int(np.argmax(np.where(prices <= budget, alone, -np.inf)))
    if alone[single] > utility:
        bought, utility = np.arange(n) == single, alone[single]
    needed = enough if utility >= enough else (1 - terms.tol) * utility
    for owner in np.argsort(-prices, kind="stable"):
        if bought[owner]:
            fewer = bought & (np.arange(n) != owner)
            if game.match(fewer[None])[0][0] >= needed:
                bought = fewer
    return bought
