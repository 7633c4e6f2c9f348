"""What models of random weights support: the claims and facts of studies in which nothing was learnt.

``python -m benchmarks.random_weights`` prints the tables of ``docs/statistics.md``. Each model is a whole study,
and its twin is a model of the same architecture with other random weights.
"""

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoConfig

from benchmarks.run import VOCABULARY, write_checkpoint
from dagster_project.analysis.claims.evidence import load_parts
from dagster_project.analysis.claims.facts import FACTS
from dagster_project.analysis.claims.judging import CLAIMS, compute_claims, read_twin
from dagster_project.assets.asset import Work
from dagster_project.assets.catalogue import ASSETS
from dagster_project.assets.landing import read_parts
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.warehouse.connection import connect

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 192, "intermediate_size": 384, "num_hidden_layers": 6,
    "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 32, "max_position_embeddings": 256,
}  # fmt: skip

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SIZES,
    "gpt2": {
        "vocab_size": VOCABULARY, "n_embd": 192, "n_layer": 8, "n_head": 6, "n_inner": 384, "n_positions": 256,
    },
    "qwen3": SIZES | {"num_hidden_layers": 12, "num_attention_heads": 4, "num_key_value_heads": 2},
    "mistral": SIZES | {"sliding_window": 64},
    "gemma3_text": SIZES | {
        "num_hidden_layers": 12, "num_key_value_heads": 1, "head_dim": 64, "sliding_window": 64,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2,
    },
    "olmo2": SIZES | {"num_key_value_heads": 6},
}  # fmt: skip
"""Configurations of small models by the name of their family in transformers."""

SEEDS = range(12, 16)
"""Seeds of the random weights of each family, a model for each. Margins and nulls were chosen with those of 0 to 11."""

SETTINGS: dict[str, Any] = {"corpus": "prose", "context_length": 128, "sequences": 8, "queries": [63, 127]}
BEFORE_CLAIMS = ("claims", "report")
"""The assets that follow the tables of a study."""

Outcome = tuple[dict[str, str], list[str]]
"""The verdict of one model of random weights on every claim, and the facts that are told of it."""


def measure_models(
    home: Home, families: Sequence[str] = tuple(FAMILIES), seeds: Sequence[int] = SEEDS
) -> Iterator[Outcome]:
    """Run the studies of every family, and yield what each finds beside the one of the next seed."""
    for family in families:
        folder = home.root / "models" / family
        write_checkpoint(AutoConfig.for_model(family, **FAMILIES[family]), folder, dtype=torch.float32)
        names = [f"{family}-{seed}" for seed in seeds]
        work: list[Work] = []
        for seed, name in zip(seeds, names, strict=True):
            model = {"id": str(folder), "weights": "random", "weights_seed": seed}
            work.append(Work(home, name, Study.model_validate(SETTINGS | {"model": model}), ASSETS))
            for asset in ASSETS:
                if asset.is_wanted(work[-1].study) and asset.name not in BEFORE_CLAIMS:
                    asset.make(work[-1])
        for one, other in zip(work, names[1:] + names[:1], strict=True):
            yield judge(one, other)


def judge(work: Work, twin: str) -> Outcome:
    """The verdicts and facts of a landed study beside another one."""
    with closing(connect(work.home.warehouse, studies=[work.name], described=False)) as connection:
        load_parts(connection, read_parts(work))
        tables = {table: rows.to_pylist() for table, rows in compute_claims(connection, read_twin(work.home, twin))}
    told = [row["fact"] for row in tables["facts"] if row["place"] is not None]
    return {row["claim"]: row["verdict"] for row in tables["claims"]}, told


def print_tables(outcomes: Sequence[Outcome]) -> None:
    """Print how many models support each claim and tell each fact, as tables in Markdown."""
    verdicts = ("supported", "not supported", "undecided", "not testable")
    print(f"| claim | null | {' | '.join(verdicts)} |", f"|---|---|{'---|' * len(verdicts)}", sep="\n")
    for claim in CLAIMS:
        counts = Counter(of_claims[claim.name] for of_claims, _ in outcomes)
        print(f"| {claim.name} | {claim.null} | {' | '.join(str(counts[verdict]) for verdict in verdicts)} |")
    facts = Counter(fact for _, told in outcomes for fact in told)
    print("", f"| fact | told of {len(outcomes)} models |", "|---|---|", sep="\n")
    for fact in FACTS:
        print(f"| {fact.name} | {facts[fact.name]} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_weights", description=__doc__.partition("\n")[0])
    parser.add_argument("--home", type=Path, help="keep the studies in this data root (default: a temporary one)")
    kept = parser.parse_args(arguments).home
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with TemporaryDirectory() as folder:
        print_tables(list(measure_models(Home(kept or Path(folder)))))


if __name__ == "__main__":
    main()
