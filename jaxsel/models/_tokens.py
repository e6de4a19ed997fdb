"""Texts as tokens, by the `tokenizers` package."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxsel._inputs.checks import check_count
from jaxsel._inputs.show import brief

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@brief
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tokens:
    """Texts as numbers, padded to one length.

    Attributes:
        ids: Array `[n, L]` int32: the tokens, special ones included.
        mask: Array `[n, L]` bool: False from where a text is padded.
    """

    ids: Any
    mask: Any

    def __len__(self) -> int:
        return len(self.ids)


def tokenize(
    texts: Sequence[str],
    tokenizer: str | os.PathLike[str] | Tokenizer,
    *,
    length: int,
) -> Tokens:
    """Cut texts into tokens, and pad or truncate each to `length`.

    Args:
        texts: n texts.
        tokenizer: A `tokenizer.json`, a folder with one, or a `tokenizers.Tokenizer`,
            which is left as it is.
        length: Tokens of a text, L, special ones included.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: If `tokenizers` is not installed.
        TypeError: If `texts` is not a sequence of texts.

    Warns:
        UserWarning: If more than a fifth of the tokens are unknown to the tokenizer.
    """
    length = check_count("length", length)
    texts = _check_texts(texts)
    tool = _open(tokenizer)
    padding = tool.padding or {}
    tool.no_padding()
    tool.enable_truncation(length)
    names = ("[PAD]", "<pad>")
    known = [i for i in map(tool.token_to_id, names) if i is not None]
    ids = np.full((len(texts), length), padding.get("pad_id", (*known, 0)[0]), np.int32)
    mask = np.zeros((len(texts), length), bool)
    words = np.zeros((len(texts), length), bool)
    for row, encoding in enumerate(tool.encode_batch(texts)):
        ids[row, : len(encoding.ids)] = encoding.ids
        mask[row, : len(encoding.ids)] = True
        words[row, : len(encoding.ids)] = ~np.array(encoding.special_tokens_mask, bool)
    _tell_unknown(tool, ids, words)
    return Tokens(ids, mask)


_UNKNOWN = 0.2  # share of the tokens; of texts in the vocabulary's language far fewer


def _tell_unknown(tool: Tokenizer, ids: np.ndarray, words: np.ndarray) -> None:
    """Warn where the tokenizer does not know the texts' words."""
    names = [i for i in map(tool.token_to_id, ("[UNK]", "<unk>")) if i is not None]
    unknown = np.isin(ids, names) & words
    share = unknown.sum() / max(words.sum(), 1)
    if share <= _UNKNOWN:
        return
    none = (unknown == words).all(1) & words.any(1)
    warnings.warn(
        f"{share:.0%} of the texts' tokens are unknown to the tokenizer, and "
        f"{none.sum():,} of {len(ids):,} texts have no other: is it the vocabulary of "
        "their language, and of their case (an uncased one knows lower-case letters "
        "only)?",
        UserWarning,
        stacklevel=3,
    )


def _open(tokenizer: str | os.PathLike[str] | Tokenizer) -> Tokenizer:
    """Return a tokenizer of our own, which may be changed."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ImportError(
            "tokenize needs tokenizers: pip install 'jaxsel[text]'"
        ) from error

    if isinstance(tokenizer, Tokenizer):
        return Tokenizer.from_str(tokenizer.to_str())
    path = Path(tokenizer)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"there is no tokenizer {file}")
    return Tokenizer.from_file(os.fspath(file))


def _check_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of texts, got a single one")
    texts = [*texts]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts must hold texts, but row {row} is {text!r}")
    return [str(text) for text in texts]
