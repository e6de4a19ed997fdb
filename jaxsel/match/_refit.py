"""Ridge regression on a growing set of atoms, with or without signs: the refit.

The state is the tableau of principal pivoting (Cottle, Pang and Stone, The Linear
Complementarity Problem, 1992, ch. 4) for

    w >= 0,   y = K w - b >= 0,   w_i y_i = 0,

the KKT conditions of `min w'Kw/2 - b'w` over w >= 0. An atom is *basic* if its weight
may differ from zero. The tableau gives all basic weights and all duals y at once, and
an exchange costs O(k^2), so that a step of matching, which adds an atom and exchanges a
few, never solves a system from scratch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsel._devices.typed import cholesky, finfo, tree_map, while_loop

# With B the basic atoms and N the others, the tableau T and `values` q say
#
#     [w_B]       [y_B]            [ K_BB^-1        -K_BB^-1 K_BN             ]
#     [y_N] = q + T [w_N],    T =  [ K_NB K_BB^-1   K_NN - K_NB K_BB^-1 K_BN  ],
#
# so that at y_B = 0, w_N = 0 the weights of B and the duals of N are q itself.

# Exchanges of all violating atoms at once that may fail to lower their number.
_PATIENCE = 3


class Refit(NamedTuple):
    """State of the refit: weights of up to k atoms, and their pivoting tableau.

    Attributes:
        gram: K on the atoms, ridge included, `[k, k]`; zero where a slot is free.
        target: b on the atoms, `[k]`.
        tableau: Principal pivot transform of K on the basic atoms, `[k, k]`.
        values: Basic atoms' weights, the others' duals, `[k]`.
        basic: Which atoms are basic, `[k]`.
    """

    gram: jax.Array
    target: jax.Array
    tableau: jax.Array
    values: jax.Array
    basic: jax.Array

    @property
    def weights(self) -> jax.Array:
        """Return every atom's weight, `[k]`."""
        return jnp.where(self.basic, self.values, 0)


_Search = tuple[Refit, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""State, atoms to exchange, fewest violations so far, patience, steps left, done."""


def empty(size: int, dtype: jax.typing.DTypeLike) -> Refit:
    """Return the refit of no atoms, with room for `size`."""
    square, line = jnp.zeros((size, size), dtype), jnp.zeros(size, dtype)
    return Refit(square, line, square, line, jnp.zeros(size, bool))


def grow(state: Refit, size: int) -> Refit:
    """Make room for `size` atoms."""
    more = size - state.target.shape[0]
    return tree_map(lambda array: jnp.pad(array, [(0, more)] * array.ndim), state)


def add(
    state: Refit, slot: jax.Array, column: jax.Array, diagonal: jax.Array, b: jax.Array
) -> tuple[Refit, jax.Array]:
    """Put an atom in a free slot, with weight 0.

    Args:
        state: The refit so far.
        slot: The free slot.
        column: The atom's inner products with all atoms, `[k]`; zero in free slots.
        diagonal: Its own, ridge included.
        b: Its inner product with the target.

    Returns:
        The new refit, and the atom's squared distance from the span of the basic atoms
        (in the norm of K): near zero if it depends on them.
    """
    # The new row and column of T: as `basic` is 0 on N, `through` is K_BB^-1 K_Bs on B
    # and K_NB K_BB^-1 K_Bs on N, and `pivot` the Schur complement of the new atom s.
    basic = jnp.where(state.basic, column, 0)
    through = _matvec(state.tableau, basic)
    pivot = diagonal - jnp.vdot(basic, through, precision="highest")
    dual = jnp.vdot(basic, state.values, precision="highest") - b
    down = jnp.where(state.basic, -through, column - through)
    across = jnp.where(state.basic, through, down)
    tableau = state.tableau.at[:, slot].set(down).at[slot].set(across)
    gram = state.gram.at[:, slot].set(column).at[slot].set(column)
    new = Refit(
        gram.at[slot, slot].set(diagonal),
        state.target.at[slot].set(b),
        tableau.at[slot, slot].set(pivot),
        state.values.at[slot].set(dual),
        state.basic,
    )
    return new, pivot


def exchange(state: Refit, p: jax.Array) -> Refit:
    """Exchange weight and dual of atom p: a principal pivot, O(k^2)."""
    # Solve row p for the other of w_p, y_p, and substitute it into all other rows.
    pivot = state.tableau[p, p]
    row, column = state.tableau[p] / pivot, state.tableau[:, p]
    tableau = state.tableau - column[:, None] * row[None, :]
    tableau = tableau.at[p].set(-row).at[:, p].set(column / pivot)
    value = state.values[p] / pivot
    return state._replace(
        tableau=tableau.at[p, p].set(1 / pivot),
        values=(state.values - column * value).at[p].set(-value),
        basic=state.basic.at[p].set(~state.basic[p]),
    )


def refine(state: Refit) -> Refit:
    """Correct weights and duals by one step of iterative refinement."""
    residual = jnp.where(
        state.basic, state.target - _matvec(state.gram, state.weights), 0
    )
    weights = state.weights + jnp.where(
        state.basic, _matvec(state.tableau, residual), 0
    )
    # From K itself, not from the tableau, whose errors grow from exchange to exchange.
    dual = _matvec(state.gram, weights) - state.target
    return state._replace(values=jnp.where(state.basic, weights, dual))


def rebuild(state: Refit) -> Refit:
    """Compute the tableau afresh, O(k^3): exchanges let rounding errors grow.

    Where K is too near singular for its type, everything stays as it is.
    """
    basic = state.basic
    both, mixed = basic[:, None] & basic, ~basic[:, None] & basic
    identity = jnp.eye(basic.shape[0], dtype=state.gram.dtype)
    # Ones on the diagonal of N keep the shape static, and K_BB's factor as it is.
    factor = cholesky(jnp.where(both, state.gram, identity))
    inverse = jax.scipy.linalg.cho_solve((factor, True), identity)
    inverse = jnp.where(both, inverse, 0)
    duals = jnp.where(mixed, state.gram, 0)
    across = jnp.matmul(duals, inverse, precision="highest")
    rest = state.gram - jnp.matmul(across, duals.T, precision="highest")
    apart = ~basic[:, None] & ~basic
    tableau = inverse + across - across.T + jnp.where(apart, rest, 0)
    # A failed factorisation is NaN.
    fine = jnp.isfinite(tableau).all()
    return refine(state._replace(tableau=jnp.where(fine, tableau, state.tableau)))


def non_negative(state: Refit) -> Refit:
    """Exchange atoms until no weight and no dual is negative.

    Block principal pivoting: all violating atoms change sides at once, or, where that
    has not lowered their number three times in a row, only the last of them, which
    cannot cycle (Kim and Park, SIAM Journal on Scientific Computing 33, 2011).
    """
    size = state.target.shape[0]
    eps = finfo(state.target.dtype).eps
    scale = jnp.sqrt(jnp.maximum(state.gram.diagonal(), 0))

    def violating(state: Refit) -> jax.Array:
        # Rounding is relative: of a dual to its terms, of weights to the largest one.
        weights = jnp.abs(state.weights)
        terms = jnp.max(weights * scale, initial=0) * scale + jnp.abs(state.target)
        slack = 16 * eps * jnp.where(state.basic, jnp.max(weights, initial=0), terms)
        return state.values < -slack

    def round_(carry: _Search) -> _Search:
        state, pending, fewest, patience, steps_left, _ = carry

        def step(carry: tuple[Refit, jax.Array]) -> tuple[Refit, jax.Array]:
            state, pending = carry
            p = _last(pending)
            return exchange(state, p), pending.at[p].set(False)

        state, _ = while_loop(lambda c: jnp.any(c[1]), step, (state, pending))
        state = refine(state)
        wrong = violating(state)
        count = jnp.sum(wrong, dtype=jnp.int32)
        fewer = count < fewest
        spent = ~fewer & (patience == 0)
        # Murty's rule: one exchange, at the largest index, ends for definite K.
        pending = wrong & (~spent | (jnp.arange(size) == _last(wrong)))
        patience = jnp.where(fewer, jnp.int32(_PATIENCE), jnp.maximum(patience - 1, 0))
        fewest = jnp.minimum(fewest, count)
        return state, pending, fewest, patience, steps_left - 1, count == 0

    # Only a K that rounding has made indefinite can reach the bound.
    none, bound = jnp.zeros(size, bool), jnp.int32(8 * size + 64)
    done = jnp.asarray(False)
    begin = (state, none, jnp.int32(size + 1), jnp.int32(_PATIENCE), bound, done)
    state = while_loop(lambda c: ~c[5] & (c[4] > 0), round_, begin)[0]
    positive = jnp.maximum(state.values, 0)  # what is below is rounding
    return state._replace(values=jnp.where(state.basic, positive, state.values))


def _last(mask: jax.Array) -> jax.Array:
    return mask.shape[0] - 1 - jnp.argmax(mask[::-1])


def _matvec(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return jnp.matmul(matrix, vector, precision="highest")
