"""Types under pyright's strict mode: a ratchet whose numbers of errors only fall.

    python -m tests.strict              # counts the errors of each room
    python -m tests.strict --show match # lists those of a room
    python -m tests.strict --update     # writes what has fallen to errors.toml

The rooms are far from strict, mostly where JAX's and SciPy's functions have incomplete
types; what is written anew should add no errors. Numbers depend on the versions of
pyright, JAX and NumPy: with others than recorded, nothing is compared, and `--update`
writes what it counts.
"""
