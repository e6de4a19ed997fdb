"""Messages of Cheetah of SPU 0.9.5: two parties, encryption and transfers.

**Products of matrices.** One party encrypts its operand in blocks of 8,192
coefficients, the other multiplies and sends back masked results. `GetSubMatShape` of
SPU's source chooses the blocks, and `blocks` repeats it: bytes are a step function of
the shapes. Of two operands that are both shares there are two such products, one each
way.

**Products of numbers** take multiplication triples, 4,096 of four ciphertexts each way,
and open two words; from 16,384 numbers on both operands are encrypted instead. Triples
that are left serve the next product: here each takes its share.

**All else**, signs, products with bits, cutting back, runs on oblivious transfers,
whose bytes are those of runs of two parties, at 18 fraction bits. The sizes of
ciphertexts are, too: they are compressed, and vary by .1 %. Refills of transfers,
some 270 KB for 10 million, are not counted.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from ._operands import Operation, elements, joins, products
from ._traffic import Traffic

SLOTS = 8192  # of a ciphertext
TRIPLES = SLOTS // 2  # of one exchange
_PARTS = 4  # ciphertexts for 8,192 numbers of 64 bits
_QUERY, _REPLY = 160_910, 124_920  # bytes of such a ciphertext, asked and answered
_BLOCK = 184_950  # bytes of an encrypted block of a matrix
_FRAME, _COEFFICIENT = 127_330, 15.54  # bytes of a result, and of each number in it
_TILE = 2048  # numbers from which a second thread takes a part
_THREADS = 2
# How much longer runs take over a link of 50 ms than over one of 10, in latencies:
_ASKING = 3  # of an exchange of ciphertexts
_FOLLOWING = 1.06  # of a message of transfers


@dataclasses.dataclass(frozen=True)
class _Gates:
    """The gates of an operation, for each element.

    Attributes:
        up: Bytes of transfers and openings from the model owner.
        down: Bytes to the model owner.
        transfers: Messages of transfers that a party waits for, one after the other.
        products: Products of numbers; each opens once.
        squares: Squares, encrypted each time.
    """

    up: float
    down: float
    transfers: int
    products: int = 0
    squares: int = 0

    def __add__(self, other: _Gates) -> _Gates:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return _Gates(*(a + b for a, b in pairs))

    def __mul__(self, times: int) -> _Gates:
        return _Gates(*(value * times for value in dataclasses.astuple(self)))


_CUT = _Gates(3, 0.125, 1)
_OPENED = _Gates(16, 16, 0, 1)
_SIGN = _Gates(69.125, 13.125, 18)
_SELECT = _Gates(8.125, 8.125, 2)
_BIT = _Gates(8, 0.125, 1)  # becomes a number
_AND = _Gates(0.25, 0.25, 2)
_LARGER = _SIGN + _SELECT
_EXP = _Gates(865, 414, 69, 9)
_RECIPROCAL = _Gates(721, 423, 52, 7, 1)
_LOG = _Gates(734, 298, 31, 8)
_PRODUCT = _OPENED + _CUT

_ELEMENTWISE = {
    "scale": _CUT,
    "mul": _PRODUCT,
    "square": _PRODUCT,
    "nonnegative": _SIGN,
    "select": _SELECT,
    "relu": _LARGER,
    "abs": _SIGN + _BIT + _OPENED,
    "exp": _EXP,
    "reciprocal": _RECIPROCAL,
    "inv_sqrt": _Gates(766.25, 392.5, 33, 6),
    "gelu": _PRODUCT * 3 + _CUT * 2 + _EXP + _RECIPROCAL,
}


def traffic(operation: Operation, samples: int) -> Traffic:
    """Return the traffic of an operation on a batch.

    Args:
        operation: Of `owned_schedule`.
        samples: Samples of the batch.
    """
    kind = operation.kind
    if kind in ("share", "zero"):
        return _NOTHING
    if kind == "matmul":
        batch, m, k, n = products(operation, samples)
        product = _matmul(m, k, n, operation.owners) + _gates(_CUT, m * n)
        return product * batch
    count = elements(operation, samples)
    holders = [owner for owner in operation.owners if owner is not None]
    if kind == "mul" and len(holders) == 1:
        return _one_way(count, owner=holders[0])
    if kind == "powers":
        return _gates(_PRODUCT, count) * (operation.degree - 1)
    if kind == "all":
        length = operation.shapes[0][-1]
        joined = (length - 1) * (count // length)
        return _gates(dataclasses.replace(_AND, transfers=2 * joins(length)), joined)
    if kind in ("softmax", "log_softmax", "max"):
        length = operation.shapes[0][-1]
        return _rows(kind, count // length, length)
    return _gates(_ELEMENTWISE[kind], count)


_NOTHING = Traffic.equal(0, 0)
STARTED = Traffic(2200, 15, (11.2e6, 11.2e6), (11.2e6, 11.2e6))
"""Keys and the start of transfers, once a session: of first runs. Rounds are the
messages of one party, as elsewhere: half of the 4,430 of both. Most of the bytes are
transfers that only long sessions need: a probe of 57 samples sends 1.7 MB of them.
"""


def _rows(kind: str, rows: int, length: int) -> Traffic:
    if kind == "max":
        total = _gates(_LARGER, rows) * (length - 1)
        return total + _gates(_SIGN, rows * length) + _gates(_NUMBERED, rows * length)
    levels = math.ceil(math.log2(length))
    largest = _gates(_LARGER, rows * (length - 1))
    largest = dataclasses.replace(
        largest, rounds=20 * levels, waits=_FOLLOWING * 20 * levels
    )  # in halves
    total = largest + _gates(_EXP, rows * length)
    if kind == "softmax":
        return total + _gates(_RECIPROCAL + _PRODUCT, rows * length)
    return total + _gates(_LOG, rows)


_NUMBERED = _Gates(138, 2.375, 1)


def _gates(gates: _Gates, count: int) -> Traffic:
    # Threads send messages of their own, and wait for them at the same time.
    threads = min(_THREADS, -(-count // _TILE))
    rounds = gates.transfers * threads + gates.products
    waits = _FOLLOWING * (gates.transfers + gates.products)
    sent = gates.up * count, gates.down * count
    transfers = Traffic(rounds, waits, sent, sent[::-1])
    asked = _NOTHING
    if gates.products:
        asked += _triples(count) * gates.products
    for _ in range(gates.squares):
        asked += _squares(count)
    return transfers + asked


def _asked(ciphertexts: float, replies: float | None = None, by: int = 1) -> Traffic:
    """Return the traffic of one party's ciphertexts, and of the other's replies."""
    replies = ciphertexts if replies is None else replies
    sent = [0.0, 0.0]
    sent[by], sent[1 - by] = _QUERY * ciphertexts, _REPLY * replies
    rounds = (ciphertexts + replies) / 2
    waits = _ASKING if ciphertexts else 0
    return Traffic(rounds, waits, (sent[0], sent[1]), (sent[1], sent[0]))


EXCHANGE = _asked(_PARTS)
"""Of the ciphertexts for 8,192 numbers, or for 4,096 triples."""


def _triples(count: int) -> Traffic:
    if count >= 2 * SLOTS:
        # Nothing is opened: take off the opening that `_OPENED` counts.
        opened = count * 16
        half = _PARTS * math.ceil(count / 2 / SLOTS)
        both = _asked(2 * half, half, by=0) + _asked(2 * half, half, by=1)
        return both + Traffic(-1, -1, (-opened, -opened), (-opened, -opened))
    return EXCHANGE * (count / TRIPLES)


def _squares(count: int) -> Traffic:
    if count <= SLOTS:
        return EXCHANGE
    half = _PARTS * math.ceil(count / 2 / SLOTS)
    return _asked(half, by=0) + _asked(half, by=1)


def _one_way(count: int, owner: int) -> Traffic:
    """Return the traffic of an elementwise product with one party's numbers."""
    asked = _asked(_PARTS * math.ceil(count / SLOTS), by=owner)
    return asked + _gates(_CUT, count)


def switched(count: int) -> Traffic:
    """Return the traffic of a layer of switches, set by shared bits."""
    return _gates(_SELECT, count)


def _matmul(m: int, k: int, n: int, owners: tuple[int | None, ...]) -> Traffic:
    """Return the traffic of one product of matrices, before it is cut back."""
    left_encrypted = encrypts_left(m, k, n)
    first, second = owners or (None, None)
    if first is None and second is None:
        return _exchange(m, k, n, 0) + _exchange(m, k, n, 1)
    # The party that has the left operand; the other one has the right one.
    holder = first if first is not None else 1 - (second or 0)
    return _exchange(m, k, n, holder if left_encrypted else 1 - holder)


def _exchange(m: int, k: int, n: int, by: int) -> Traffic:
    asked, replies, packed = ciphertexts(m, k, n)
    numbers = SLOTS * replies if packed else m * n
    sent = [0.0, 0.0]
    sent[by] = asked * _BLOCK
    sent[1 - by] = replies * _FRAME + numbers * _COEFFICIENT
    rounds = (asked + replies) / 2
    return Traffic(rounds, _ASKING, (sent[0], sent[1]), (sent[1], sent[0]))


def ciphertexts(m: int, k: int, n: int) -> tuple[int, int, bool]:
    """Return how many blocks are asked with and replied, and if replies are packed.

    Args:
        m: Rows of the product.
        k: Its inner size.
        n: Its columns.
    """
    kind, counts, inner = _layout(m, k, n)
    asked = min(counts[0] * counts[1], counts[1] * counts[2])
    results = counts[0] * counts[2]
    if kind == "interleaved":
        return asked, -(-results // inner), True
    if kind == "single":
        return asked, -(-m * n // SLOTS), True
    return asked, results, False


def encrypts_left(m: int, k: int, n: int) -> bool:
    """Return whether the left operand is the one that is encrypted."""
    _, counts, _ = _layout(m, k, n)
    return counts[0] <= counts[2]


@functools.lru_cache(4096)
def _layout(m: int, k: int, n: int) -> tuple[str, tuple[int, ...], int]:
    """Return how results are packed, the blocks of each axis, and a block's inner size.

    References:
        SPU, libspu/mpc/cheetah/arith/cheetah_dot.cc: doDotOLE.
    """
    sizes, block = (m, k, n), blocks(m, k, n, packed=True)
    counts = tuple(-(-a // b) for a, b in zip(sizes, block, strict=True))
    if counts[0] * counts[2] > 1:
        kind = "interleaved" if block[1] < m * n else "single"
        return kind, counts, block[1]
    block = blocks(m, k, n, packed=False)
    counts = tuple(-(-a // b) for a, b in zip(sizes, block, strict=True))
    return "plain", counts, block[1]


@functools.lru_cache(4096)
def blocks(m: int, k: int, n: int, *, packed: bool) -> tuple[int, int, int]:
    """Return the block's sizes that SPU takes for a product `[m, k]` by `[k, n]`.

    Takes O(min(m, 8192) log k) steps where results are packed.

    References:
        SPU, libspu/mpc/cheetah/arith/matmat_prot.cc: GetSubMatShape.
    """
    least, best = math.inf, (1, 1, 1)
    for rows in range(1, min(SLOTS, m) + 1):
        down, inner = -(-m // rows), 1
        while inner <= k and rows * inner <= SLOTS:
            through = -(-k // inner)
            columns = min(n, SLOTS // rows // inner)
            across = -(-n // columns)
            sent = min(down, across) * through + -(-down * across // inner)
            turns = -(-m * n // SLOTS) * inner if packed else 0
            price = sent * 1000.0 + turns + down * through * across / 10.0
            # Of equal prices SPU takes the last one.
            if price <= least:
                least, best = price, (rows, inner, columns)
            inner = inner * 2 if packed else inner + 1
    return best
