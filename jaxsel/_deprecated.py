"""The warning of what goes, the same for all; CONTRIBUTING.md has the policy."""

import warnings


def warn_deprecated(what: str, *, since: str, removal: str, instead: str) -> None:
    """Warn, at the line that called our caller, of what will be removed.

    For an argument, a value of one, or an attribute. A whole function or class has the
    decorator of PEP 702, `typing_extensions.deprecated`, which type checkers see, too.

    Args:
        what: As users write it, such as "knn_shapley(metric=...)".
        since: Version that warns first.
        removal: Version that will not have it; `tests/test_deprecated.py` fails there.
        instead: What to do, such as "pass distance".
    """
    warnings.warn(
        f"{what} is deprecated since jaxsel {since}, and {removal} will not have it: "
        f"{instead}",
        DeprecationWarning,
        stacklevel=3,
    )
