"""`radmoe inspect` shows what is in a pool."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radmoe.cli.common import Json, PoolPath, limited, progress, size, sizes_of
from radmoe.system.printing import console, say_json

if TYPE_CHECKING:
    from radmoe.pool import Pool
    from radmoe.types import Kind

EXAMPLES = (
    "radmoe inspect pool/",
    "radmoe inspect pool/ --json",
    "radmoe inspect pool/ --limit 20",
)

_COVERAGE: tuple[tuple[str, Kind], ...] = (
    ("delimiter@16", "math"),
    ("delimiter@16", "code"),
    ("closing@-16", "math"),
    ("closing@-16", "code"),
    ("boundary@16", "text"),
    ("trajectory:so@16", "math"),
    ("trajectory:now@16", "math"),
    ("boundary@union", "agent"),
)


def command(
    pool: PoolPath,
    limit: Annotated[int | None, typer.Option("--limit", help="Look for anchors in the first problems only.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a pool holds, and which anchors its rollouts have."""
    from radmoe.pool import open_pool

    opened = open_pool(pool)
    facts = _facts(opened)
    facts["coverage"] = _coverage(opened, limit)
    if as_json:
        say_json(facts)
    else:
        _print(facts)


def _facts(pool: Pool) -> dict[str, Any]:
    stored_bytes = sum(shard.bytes for shard in pool.shards.values())
    captured_bytes, kept_bytes, routing_bytes = pool.routing_bytes()
    counts = [len(pool.rollout_indices(p)) for p in pool.problems[:1]]
    return {
        "path": str(pool.path),
        "model": pool.model,
        "task": pool.task,
        "style": pool.style,
        "kinds": dict(Counter(kind or "not recorded" for kind in pool.kinds.values())),
        "router": str(pool.router),
        "sampling": pool.sampling,
        "provenance": list({json.dumps(p, sort_keys=True): p for p in pool.provenance.values()}.values()),
        "profile": {k: v for k, v in pool.profile.to_json().items() if v not in (None, False)},
        "weights": pool.has_weights,
        "problems": len(pool.problems),
        "rollouts": len(pool),
        "rollouts_per_problem": counts[0] if counts else 0,
        "tokens": pool.tokens,
        "shards": len(pool.shards),
        "bytes": stored_bytes,
        "bytes_per_token": stored_bytes / pool.tokens if pool.tokens else None,
        "routing_bytes": routing_bytes,
        "routing_bytes_captured": captured_bytes,
        "routing_bytes_saved_by_profile": captured_bytes - kept_bytes,
        "compression": kept_bytes / routing_bytes if routing_bytes else None,
    }


def _coverage(pool: Pool, limit: int | None) -> list[dict[str, Any]]:
    from radmoe.selection.readout import windows

    counts = dict.fromkeys(_COVERAGE, 0)
    total = 0
    problems = limited(limit, pool.problems)
    for problem in progress(problems, sizes_of(pool, problems), "looking for anchors"):
        group = pool.group(problem)
        for rollout in group.rollouts:
            total += 1
            for readout, kind in _COVERAGE:
                counts[readout, kind] += bool(windows(readout, rollout.token_ids, group.vocab, kind))
    return [
        {
            "readout": readout,
            "kind": kind,
            "located": count,
            "rollouts": total,
            "share": count / total if total else None,
        }
        for (readout, kind), count in counts.items()
    ]


def _describe_provenance(provenance: dict[str, Any]) -> str:
    """The versions and the host that shards come from, in one line."""
    versions = {"radmoe": provenance.get("radmoe")} | provenance.get("versions", {})
    parts = [f"{name} {version}" for name, version in versions.items() if version]
    return ", ".join(parts) + (f" on {provenance['host']}" if provenance.get("host") else "")


def _print(facts: dict[str, Any]) -> None:
    from radmoe.system.screen import ScreenTable

    out = console()
    table = ScreenTable(title=f"pool {facts['path']}", title_justify="left", show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    compression = facts["compression"]
    saved_bytes, captured_bytes = facts["routing_bytes_saved_by_profile"], facts["routing_bytes_captured"]
    rows = {
        "model": facts["model"],
        "router": facts["router"] + ("" if facts["weights"] else ", ids only"),
        "task": " ".join(filter(None, (facts["task"], facts["style"]))) or "not recorded",
        "kind": ", ".join(f"{kind} ({count:,} problems)" for kind, count in facts["kinds"].items()) or "no problems",
        "sampling": json.dumps(facts["sampling"]) if facts["sampling"] else "not recorded",
        "problems": f"{facts['problems']:,}",
        "rollouts": f"{facts['rollouts']:,} ({facts['rollouts_per_problem']} of the first problem)",
        "tokens": f"{facts['tokens']:,}",
        "shards": str(facts["shards"]),
        "on disk": f"{size(facts['bytes'])}, {facts['bytes_per_token'] or 0:.0f} bytes per token",
        "routing": f"{size(captured_bytes)} captured, {size(facts['routing_bytes'])} on disk"
        + (f", compressed {compression:.2f}x" if compression else ""),
    }
    rows["made by"] = "; ".join(map(_describe_provenance, facts["provenance"])) or "not recorded"
    if facts["profile"]:
        share = saved_bytes / captured_bytes if captured_bytes else 0.0
        rows["profile"] = f"{json.dumps(facts['profile'])} left out {size(saved_bytes)} ({share:.0%})"
    for name, value in rows.items():
        table.add_row(name, value)
    out.print(table)
    out.print()
    anchors = ScreenTable(title="anchor coverage", title_justify="left", box=None)
    for heading in ("readout", "kind", "located", "share"):
        anchors.add_column(heading, justify="left" if heading in ("readout", "kind") else "right")
    for row in facts["coverage"]:
        share = "-" if row["share"] is None else f"{row['share']:.1%}"
        anchors.add_row(row["readout"], row["kind"], f"{row['located']:,}", share)
    out.print(anchors)
