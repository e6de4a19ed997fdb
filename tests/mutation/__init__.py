"""Mutation testing in small: would the tests notice if the code were wrong?

`make mutants` draws some 180 mutants of the rooms in `rooms.toml`, adds those of
`fixed.toml`, and runs, for each, the tests that may notice it until one fails. It
writes `mutants/mutants.jsonl`, a line a mutant as it comes, and `mutants/mutants.md`:
the kill rate of each room, and each survivor with the reason that `survivors.toml`
gives. A survivor without a reason makes the command fail.

- `operators.py`: what is changed, by the operators of cosmic-ray and three of ours, and
  what is left out as equivalent.
- `sample.py`: a seeded sample, an equal number of each room, spread evenly over the
  lines of its files; kernels and protocols twice as densely. The fixed list comes on
  top: what reviews found, and the compiled operations.
- `runner.py`, `recorder.py`: first a baseline: which test runs which lines, by
  coverage, with JAX's caches cleared before each test. Tests that fail so are left out,
  for they fail alone. A mutant is then given the tests that run its lines, quick ones
  first, and after them all others that run any line of its file. A test that takes much
  longer than in the baseline counts as a kill. Tests marked slow take no part.
- Each worker has a private copy of the checkout, which itself is never changed, and a
  new process for each mutant: JAX's threads do not survive a fork. They share a cache
  of compiled programs, so that only what a mutant changes is compiled.

A run that was stopped goes on. What was killed stays so until its file changes; what
survived is tried again once the tests of its room have changed, unless `survivors.toml`
explains it: then it counts as a survivor without being tried, but with `--explained`.
`record.jsonl` holds what the last whole run found: copy `mutants/mutants.jsonl` there
after one. `rm -r mutants` forgets what came since. All mutants of these rooms would
take weeks; of 200, the rate is known to about 4 points, and each survivor shows a kind
of hole.
"""
