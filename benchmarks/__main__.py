"""The command ``python -m benchmarks``: runs the benchmarks, prints one table, saves it as JSON.

Holds the list of benchmarks, the arguments, the table and the file.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import effects, extraction, landing, metrics, run, selection, separation
from benchmarks.measure import Benchmark, Result, describe_machine

BENCHMARKS: tuple[Benchmark, ...] = (
    run.BENCHMARK,
    *selection.BENCHMARKS,
    metrics.BENCHMARK,
    *separation.BENCHMARKS,
    *extraction.BENCHMARKS,
    effects.BENCHMARK,
    landing.BENCHMARK,
)

RESULTS = Path(__file__).parent / "results"

WIDTH = 150
"""Width of the table if standard output is not a terminal, in columns."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that the arguments select; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure performance as ratios of contenders that run in alternation."
    )
    small = "small sizes, without targets: a test that runs for seconds"
    parser.add_argument("--small", action="store_true", help=small)
    parser.add_argument("--only", metavar="NAME", help="run one benchmark, or a subject such as 'selection'")
    saved_to = "file to save the results to (default: in benchmarks/results/)"
    parser.add_argument("--out", metavar="FILE.json", type=Path, help=saved_to)
    options = parser.parse_args(arguments)
    chosen = [b for b in BENCHMARKS if options.only is None or options.only in {b.name, b.name.partition(".")[0]}]
    if not chosen:
        parser.error(f"there is no benchmark '{options.only}'; choose one of: {', '.join(b.name for b in BENCHMARKS)}")
    described, started = describe_machine(), datetime.now(UTC)  # before this process adds to the load
    results: list[Result] = []
    skipped: dict[str, str] = {}
    for benchmark in chosen:
        if missing := benchmark.missing():
            skipped[benchmark.name] = missing
            print(f"{benchmark.name} skipped: {missing}", file=sys.stderr, flush=True)
            continue
        print(f"{benchmark.name} ...", file=sys.stderr, flush=True)
        results += [replace(r, target=None) for r in benchmark.small()] if options.small else benchmark.full()
    Console(width=None if sys.stdout.isatty() else WIDTH).print(build_table(results))
    out = options.out or RESULTS / f"{started:%Y%m%dT%H%M%SZ}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    saved = {
        "started": started.isoformat(timespec="seconds"),
        "small": options.small,
        "machine": described,
        "skipped": skipped,
        "results": [asdict(result) | {"met": result.met} for result in results],
    }
    out.write_text(json.dumps(saved, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    print(f"saved {out}")
    return 0


def build_table(results: Sequence[Result]) -> Table:
    """One row per figure."""
    table = Table(title="Median ratio over rounds in which the contenders alternate", show_lines=True)
    for heading in ("figure", "contenders", "ratio", "lowest-highest", "target", "medians"):
        table.add_column(heading, overflow="fold")
    for result in results:
        sizes = ", ".join(f"{name} {size:,}" for name, size in result.sizes.items())
        note = f"\n{result.note}" if result.note else ""
        sign, met = "≥" if result.kind == "speed" else "≤", "[green]met[/green]" if result.met else "[red]missed[/red]"
        table.add_row(
            f"{result.name}\n({result.kind})",
            f"{result.what}\nagainst {result.against}\n[dim]{sizes}; {result.repeats} rounds{note}[/dim]",
            f"{result.ratio:.2f}",
            f"{result.lowest:.2f}-{result.highest:.2f}",
            "none" if result.target is None else f"{sign} {result.target:g} {met}",
            f"{result.what_median:.4g} s\n{result.against_median:.4g} s",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
