"""Does code print what a page shows? Numbers to the digits shown; no times, no ids."""

import re

_TIME = re.compile(r"\b[\d.]+ (?=(?:ms|s|min)\b)")
_ID = re.compile(r"(?<=[( ])(?=\d*[a-f])[0-9a-f]{8}(?=,)")  # of a request, drawn anew
_NUMBER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d*)?(?:e[+-]?\d+)?%?)(?!\w)")


def shows(shown: str, printed: str, whole: bool = True) -> bool:
    """Return whether what is shown was printed.

    Lines are compared whole, any spaces between words as one. A line "..." in `shown`
    stands for any lines. `whole`: it is all that was printed, not only lines of it.
    """
    parts = [part.strip().splitlines() for part in re.split(r"(?m)^\.\.\.$", shown)]
    lines = printed.strip().splitlines()
    if whole and len(parts) == 1:
        return len(lines) == len(parts[0]) and _same_lines(parts[0], lines)
    start = 0
    for part in parts:
        found = [
            at
            for at in range(start, len(lines) - len(part) + 1)
            if _same_lines(part, lines[at : at + len(part)])
        ]
        if not found or (whole and part is parts[0] and found[0]):
            return False
        start = found[0] + len(part)
    return not whole or not parts[-1] or start == len(lines)


def _same_lines(shown: list[str], printed: list[str]) -> bool:
    return all(_same(*pair) for pair in zip(shown, printed, strict=True))


def _same(shown: str, printed: str) -> bool:
    left, right = (
        _NUMBER.split(" ".join(_ID.sub("", _TIME.sub("", line)).split()))
        for line in (shown, printed)
    )
    return len(left) == len(right) and all(
        _near(a, b) if i % 2 else a == b
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    )


def _near(shown: str, printed: str) -> bool:
    """Whole numbers are equal; the last digit of others may be one more or less.

    It rests on how a platform rounds. A number of one digit has to be equal.
    """
    if shown == printed:
        return True
    digits, _, exponent = shown.rstrip("%").partition("e")
    if shown.endswith("%") != printed.endswith("%"):
        return False
    if len(digits.lstrip("-0.").replace(".", "")) < 2:
        return False
    if "." not in digits and not shown.endswith("%"):
        return False
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(shown.rstrip("%")) - float(printed.rstrip("%"))) < 1.01 * unit
