"""Types under pyright's strict mode: a ratchet whose numbers of errors only fall.

    python -m tests.strict              # counts the errors of each room
    python -m tests.strict --show match # lists those of a room
    python -m tests.strict --update     # writes what has fallen to errors.toml

What errors are left come mostly from functions of JAX and SciPy with incomplete types;
what is written anew should add none. Numbers depend on the versions of pyright, JAX and
NumPy: with others than recorded, nothing is compared, and `--update` writes what it
counts.
"""
