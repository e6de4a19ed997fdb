"""A tiny bitmap font, three pixels wide and five high."""

from __future__ import annotations

import numpy as np

# One octal digit a row, top to bottom; its bits are the pixels, left to right.
_GLYPHS = {
    "A": "25755", "B": "65656", "C": "34443", "D": "65556", "E": "74647",
    "F": "74644", "G": "34553", "H": "55755", "I": "72227", "J": "11152",
    "K": "55655", "L": "44447", "M": "57755", "N": "65555", "O": "25552",
    "P": "65644", "Q": "25563", "R": "65655", "S": "34216", "T": "72222",
    "U": "55557", "V": "55552", "W": "55775", "X": "55255", "Y": "55222",
    "Z": "71247", "0": "75557", "1": "26227", "2": "61247", "3": "61216",
    "4": "55711", "5": "74616", "6": "34757", "7": "71122", "8": "75757",
    "9": "75716", " ": "00000", ".": "00002", "-": "00700", "!": "22202",
    "?": "61202",
}  # fmt: skip


def render(text: str, height: int, width: int) -> np.ndarray:
    """Return a boolean image `[height, width]` with the text in its middle.

    As large as it fits, in whole multiples of the font.

    Raises:
        ValueError: If a character has no glyph, the text is empty, or it does not fit.
    """
    letters = text.upper()
    unknown = sorted(set(letters) - set(_GLYPHS))
    if unknown or not letters.strip():
        raise ValueError(
            f"text must be made of {''.join(_GLYPHS)!r} and not be empty, got {text!r}"
        )
    glyphs = [
        [[int(row) >> shift & 1 for shift in (2, 1, 0)] + [0] for row in _GLYPHS[c]]
        for c in letters
    ]
    line = np.concatenate([np.array(g, bool) for g in glyphs], axis=1)[:, :-1]
    factor = min(height // line.shape[0], width // line.shape[1])
    if factor < 1:
        raise ValueError(
            f"text {text!r} needs images of at least {line.shape[0]} x "
            f"{line.shape[1]} pixels, got {height} x {width}"
        )
    big = np.kron(line, np.ones((factor, factor), bool))
    image = np.zeros((height, width), bool)
    top, left = (height - big.shape[0]) // 2, (width - big.shape[1]) // 2
    image[top : top + big.shape[0], left : left + big.shape[1]] = big
    return image
