"""What a run found, as Markdown: a table by room, and each survivor with its reason."""

import collections

from .runner import Result
from .sample import Settings

Key = tuple[str, ...]


def key(result: Result) -> Key:
    """Return what an explanation names a survivor by."""
    return tuple(result.mutant[part] for part in ("file", "function", "old", "new"))


def unexplained(results: list[Result], settings: Settings) -> list[Result]:
    """Return the survivors that `survivors.toml` says nothing of."""
    return [r for r in results if not r.killed and not settings.why.get(key(r))]


def summary(results: list[Result], settings: Settings) -> str:
    """Write the whole report."""
    survivors = [r for r in results if not r.killed]
    lines = ["# Mutants", ""]
    lines += _table(results)
    lines += ["", "## Survivors", ""]
    if not survivors:
        lines += ["None.", ""]
    for result in survivors:
        mutant = result.mutant
        why = settings.why.get(key(result), "**Not explained.**")
        lines += [f"- `{mutant['file']}:{mutant['line']}` ({mutant['operator']})", ""]
        lines += ["  ```diff"]
        lines += [f"  -{line}" for line in mutant["old"].splitlines()]
        lines += [f"  +{line}" for line in mutant["new"].splitlines()]
        lines += ["  ```", "", f"  {why}", ""]
    lines += _outlived(results, settings)
    return "\n".join(lines).rstrip() + "\n"


def _table(results: list[Result]) -> list[str]:
    rooms = sorted({r.mutant["room"] for r in results})
    rows = [(room, [r for r in results if r.mutant["room"] == room]) for room in rooms]
    if len(rooms) > 1:
        rows.append(("all", results))
    lines = [
        "| room | mutants | killed | of these by time | survived | kill rate |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for room, some in rows:
        count = collections.Counter(r.status for r in some)
        killed = count["killed"] + count["timeout"]
        lines.append(
            f"| {room} | {len(some)} | {killed} | {count['timeout']} "
            f"| {count['survived']} | {killed / len(some):.1%} |"
        )
    return lines


def _outlived(results: list[Result], settings: Settings) -> list[str]:
    """Name explanations of mutants that were tried and are killed by now."""
    dead = {key(r) for r in results if r.killed} & settings.why.keys()
    if not dead:
        return []
    lines = [
        "## Explained in vain",
        "",
        "Killed by now; drop them from survivors.toml.",
        "",
    ]
    return lines + [f"- `{file}`: `{new}`" for file, _, _, new in sorted(dead)]
