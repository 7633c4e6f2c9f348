"""How often intervals cover, and how often verdicts are wrong, measured by simulation.

``python -m benchmarks.coverage`` prints the tables of ``docs/statistics.md``, and with the database of a study that of
power. Holds the draws, rates and tables.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dagster_project.analysis.claims.evidence import Sample
from dagster_project.analysis.claims.judging import CLAIMS, Judgement, compare_part, decide_claims, find_measure
from dagster_project.analysis.claims.records import Claim, Part
from geometry import selection_profile
from geometry.grids import compute_band_weights
from geometry.statistics.arrangements import associate, build_shapes, correlate_heads, measure_change
from geometry.statistics.intervals import (
    Estimate,
    estimate_correlation,
    estimate_jackknife,
    estimate_mean,
    leave_one_out,
)
from geometry.statistics.verdicts import ERROR_RATE, compare_with_threshold, count_sequences_needed

F64 = NDArray[np.float64]
Draw = Callable[[tuple[int, ...]], F64]
"""Draws numbers of a shape."""

Rng = np.random.Generator

SEQUENCES = (4, 8, 16, 64)
TRIALS = 2000
PAGES = 1000
MODELS = 200

KAPPAS = (0.5, 1.0, 2.0)
"""Alternatives of a claim about bounds: as many as κ are computed."""

HEADS, CLUSTERS, LAYERS = 270, 90, 30
"""Heads of a model in which three share their KV head, and three KV heads make a layer."""

BLOCK = 250
"""Trials that are in memory at a time."""

DRAWS: dict[str, Callable[[Rng, tuple[int, ...]], F64]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "skewed": lambda rng, shape: rng.standard_exponential(shape) - 1,
    "bounded": lambda rng, shape: (rng.beta(0.5, 0.5, shape) - 0.5) * np.sqrt(8),
}
"""Draws of mean 0 and variance 1: normal, exponential (skewness 2), and U-shaped between two bounds."""


@dataclass(frozen=True)
class Rate:
    """A share of trials."""

    what: str
    draws: str
    sequences: int
    share: float
    trials: int


def estimate_means(draw: Draw, sequences: int, trials: int) -> tuple[Estimate, float]:
    """Means over sequences, and their expectation."""
    return estimate_mean(draw((sequences, trials))), 0.0


def estimate_ratios(draw: Draw, sequences: int, trials: int) -> tuple[Estimate, float]:
    """Ratios of two means over the same sequences, both with a coefficient of variation of 0.3."""
    common, *own = draw((3, sequences, trials))
    both = 1 + 0.3 * np.sqrt(0.5) * (common + np.array(own))
    whole, (without_one, without_other) = both.mean(axis=1), (leave_one_out(part) for part in both)
    return estimate_jackknife(whole[0] / whole[1], without_one / without_other), 1.0


def estimate_correlations(draw: Draw, sequences: int, trials: int) -> tuple[Estimate, float]:
    """Correlations over heads of means over sequences, whose variance is a quarter of that of the heads."""
    rng = np.random.default_rng(1)
    heads = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], HEADS).T
    one, other = heads[:, None, None] + 0.5 * draw((2, sequences, trials, HEADS))
    whole = correlate_heads(one.mean(axis=0), other.mean(axis=0))
    without = correlate_heads(leave_one_out(one), leave_one_out(other))
    return estimate_correlation(whole, without), float(correlate_heads(*heads))


def estimate_associations(draw: Draw, sequences: int, trials: int) -> tuple[Estimate, float]:
    """Fisher's z within layers over heads of 90 KV groups, by sequence; its expectation is that of many sequences."""
    estimate = estimate_mean(_correlate_within(draw, sequences * trials).reshape(sequences, trials))
    return estimate, _expect_association(draw.func)  # type: ignore[attr-defined]


@cache
def _expect_association(draw: Callable[[Rng, tuple[int, ...]], F64]) -> float:
    """Mean over 40,000 sequences."""
    return float(_correlate_within(partial(draw, np.random.default_rng(3)), 40_000).mean())


def _correlate_within(draw: Draw, sequences: int) -> F64:
    """Fisher's z of each sequence, of heads that stay the same."""
    rng, layer, group = np.random.default_rng(2), np.arange(HEADS) * LAYERS // HEADS, np.arange(HEADS) // 3
    clusters = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], CLUSTERS).T[:, group]
    depth = 2 * layer / LAYERS
    z = []
    for start in range(0, sequences, 1000):
        one, other = (clusters + depth)[:, None] + draw((2, min(1000, sequences - start), HEADS))
        z.append(associate(one, other, layer, group).of_sequences)
    return np.concatenate(z)


STATISTICS = {
    "mean": estimate_means,
    "ratio of means": estimate_ratios,
    "correlation of means": estimate_correlations,
    "association within layers": estimate_associations,
}
"""What intervals are made of; each gives estimates of trials and the true value."""


def measure_coverage(trials: int = TRIALS, sequences: Sequence[int] = SEQUENCES, seed: int = 0) -> Iterator[Rate]:
    """How often 95 % intervals cover the true value, by statistic, draws and number of sequences."""
    for what, estimate in STATISTICS.items():
        for draws, draw in DRAWS.items():
            for count in sequences:
                covered = 0
                for start in range(0, trials, BLOCK):
                    rng = np.random.default_rng([seed, count, start])
                    estimates, truth = estimate(partial(draw, rng), count, min(BLOCK, trials - start))
                    covered += int(((estimates.low <= truth) & (truth <= estimates.high)).sum())
                yield Rate(what, draws, count, covered / trials, trials)


def measure_verdicts(pages: int = PAGES, sequences: Sequence[int] = (8, 16, 24), seed: int = 0) -> Iterator[Rate]:
    """How often a page of all claims supports one falsely, and has any wrong verdict, in the worst case.

    Every measure equals its threshold, so that every verdict is wrong; of a conjunction one part does and the others
    are met, of alternatives all do. Measures of a sequence have a correlation of a half, since they share its text.
    """
    for draws, draw in DRAWS.items():
        for count in sequences:
            of_pages = []
            for page in range(pages):
                drawn = partial(draw, np.random.default_rng([seed, count, page]))
                text = drawn((count,))
                of_pages.append(_decide((claim, _draw_parts(claim, drawn, text)) for claim in CLAIMS))
            shares = {
                "pages with a false support": np.mean(["supported" in page.values() for page in of_pages]),
                "pages with a wrong verdict": np.mean([bool(page) for page in of_pages]),
            }
            shares |= {claim.name: np.mean([claim.name in page for page in of_pages]) for claim in CLAIMS}
            for what, share in shares.items():
                yield Rate(what, draws, count, float(share), pages)


def _decide(judged: Iterable[tuple[Claim, Iterable[tuple[Part, Sample]]]]) -> dict[str, str]:
    """The verdicts of a page on the claims that it decides, by name, from the samples of their parts."""
    compared = [
        Judgement(claim, tuple((part, sample, compare_part(part, sample)) for part, sample in parts), None)
        for claim, parts in judged
    ]
    return {name: verdict for name, verdict in decide_claims(compared).items() if verdict != "undecided"}


def _draw_parts(claim: Claim, draw: Draw, text: F64) -> Iterator[tuple[Part, Sample]]:
    """The parts of a claim with drawn samples."""
    for place, part in enumerate(claim.parts * (len(KAPPAS) if claim.alternatives else 1)):
        threshold = find_measure(part.measure).scale.forward(part.threshold)
        met = place > 0 and not claim.alternatives
        beyond = 100.0 * met * (1 if part.direction in {">", ">="} else -1)
        yield part, Sample(threshold + beyond + np.sqrt(0.5) * (text + draw(text.shape)), claim.least_rows)


def measure_power(
    database: duckdb.DuckDBPyConnection, pages: int = PAGES, sequences: Sequence[int] = (8, 16, 32), seed: int = 0
) -> Iterator[Rate]:
    """How often a page decides a claim of a study with other numbers of sequences, by claim that the study tests.

    Its measures are normal with the means and covariances over sequences that the study has; the random arrangements
    of associations are left out.
    """
    rows = database.execute("SELECT measure, list(value ORDER BY sequence) FROM measure_values GROUP BY ALL").fetchall()
    values = {name: np.array(of_sequences) for name, of_sequences in rows if len(of_sequences) > 1}
    middle = {name: of_sequences.mean() for name, of_sequences in values.items()}
    verdicts = dict(database.execute("SELECT claim, verdict FROM claims WHERE p IS NOT NULL").fetchall())
    query = "SELECT claim, measure, direction, threshold FROM claim_parts ORDER BY claim, part"
    parts = [(name, Part(*rest)) for name, *rest in database.execute(query).fetchall()]
    tested = [claim for claim in CLAIMS if claim.name in verdicts]
    for count in sequences:
        rates = []
        for page in range(pages):
            text = np.random.default_rng([seed, count, page]).standard_normal((count, max(map(len, values.values()))))
            drawn = {
                name: Sample(middle[name] + text[:, : len(one)] @ (one - middle[name]) / np.sqrt(len(one) - 1), 1)
                for name, one in values.items()
            }
            rates.append(
                _decide(
                    (claim, [(part, drawn[part.measure]) for name, part in parts if name == claim.name])
                    for claim in tested
                )
            )
        for claim in tested:
            share = float(np.mean([claim.name in page for page in rates]))
            yield Rate(claim.name, verdicts[claim.name], count, share, pages)


def measure_random_weights(models: int = MODELS, seed: int = 0) -> Iterator[Rate]:
    """How often associations with ρ_0 are called significant at 5 % in language models of random weights.

    LLaMA, 4 layers of 8 heads, 8 sequences of 128 random tokens: within layers by the rule, and over all heads by
    the usual test of a correlation of means.
    """
    p_values = [_test_associations(seed + model) for model in range(models)]
    for way in ("within layers", "over all heads"):
        for name in LEVELS:
            share = float(np.mean([one[way, name] <= ERROR_RATE for one in p_values]))
            yield Rate(f"ρ_0 and {name} {way}", "random weights", 8, share, models)


def _test_associations(seed: int) -> dict[tuple[str, str], float]:
    """The p values of one model."""
    rho_0, levels = measure_model(seed)
    sequences, layers, heads = rho_0.shape
    layer, rho_0 = np.arange(layers).repeat(heads), rho_0.reshape(sequences, -1)
    p_values = {}
    for name, of_heads in levels.items():
        level = of_heads.reshape(sequences, -1)
        association = associate(level, rho_0, layer, np.arange(layers * heads))
        sample = Sample(association.of_sequences, association.heads, arranged=association.arranged)
        p_values["within layers", name] = sample.compare(0.0, above=True).p
        p_values["over all heads", name] = float(stats.pearsonr(level.mean(axis=0), rho_0.mean(axis=0)).pvalue)
    return p_values


PLANTED: dict[str, Callable[[F64], NDArray[Any]]] = {
    "no change": lambda depth: 0 * depth,
    "a step of 2 after a third of the layers": lambda depth: 2.0 * (depth >= 1 / 3),
    "a step of 3 after a third of the layers": lambda depth: 3.0 * (depth >= 1 / 3),
    "a slope of 3 from the first layer to the last": lambda depth: 3.0 * depth,
}
"""Changes over layers that are added to layers in random order, whose standard deviation is 1; depth is from 0 to 1."""

PROFILES = 200


def measure_layers(profiles: int = PROFILES, layers: Sequence[int] = (6, 12, 18, 30), seed: int = 0) -> Iterator[Rate]:
    """How often a change over layers is significant at 5 %, by the rule and by the interval at the place of its step.

    Layers are normal and the same in all 8 sequences, which add noise of a tenth of their standard deviation.
    """
    for what, plant in PLANTED.items():
        for count in layers:
            rng = np.random.default_rng([seed, count])
            p = np.array([_test_change(rng, plant(np.arange(count) / count), place) for place in range(profiles)])
            shares = (p <= ERROR_RATE).mean(axis=0)
            yield Rate(what, "layers in random order", count, float(shares[0]), profiles)
            if what == "no change":
                yield Rate(what, "the interval alone", count, float(shares[1]), profiles)


def _test_change(rng: Rng, planted: NDArray[Any], seed: int) -> tuple[float, float]:
    """The p value of a change over layers, and that of a step at its place over sequences alone."""
    count = len(planted)
    drawn = planted + rng.standard_normal(count) + 0.1 * rng.standard_normal((8, count))
    change = measure_change(drawn, np.ones(count, np.bool_), seed=seed)
    place = int(np.abs(build_shapes(count)[:-1] @ drawn.mean(axis=0)).argmax()) + 1
    heights = drawn[:, place:].mean(axis=1) - drawn[:, :place].mean(axis=1)
    arranged = Sample(change.last_half - change.first_half, count, arranged=change.by_depth)
    return arranged.compare(0.0, above=True).p, compare_with_threshold(heights, 0.0, above=True).p


LEVELS = ("Recall", "Precision", "r_min")


def measure_model(seed: int, sequences: int = 8, tokens: int = 128) -> tuple[F64, dict[str, F64]]:
    """ρ_0 and means over ln N of a LLaMA of random weights, (sequence, layer, head) each."""
    import torch  # both are slow to import
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4}
    sizes |= {"num_attention_heads": 8, "attn_implementation": "eager"}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    kept: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.self_attn.v_proj.register_forward_hook(lambda _module, _given, out: kept.append(out))
    with torch.no_grad():
        weights = model(torch.randint(0, 256, (sequences, tokens)), output_attentions=True).attentions
    heads = [one.unflatten(-1, (8, -1)).transpose(1, 2).numpy() for one in kept]
    values = np.stack(heads, axis=1)  # (sequence, layer, head, key, component)
    attention = np.stack([one[:, :, -1].numpy() for one in weights], axis=1)
    profile, n = selection_profile(attention, values), np.arange(1, tokens)
    floor = n / tokens
    curves = {
        "Recall": profile.recall,
        "Precision": (profile.precision - floor) / (1 - floor),
        "r_min": profile.r_min / profile.norm_s,
    }
    unit = values / np.linalg.norm(values, axis=-1, keepdims=True)
    rho_0 = np.einsum("...d,...kd->...k", unit[..., 0, :], unit[..., 1:, :]).mean(axis=-1)
    return rho_0, {name: curve @ compute_band_weights(tokens)[:, 0] for name, curve in curves.items()}


def print_tables() -> None:
    """Print the tables of ``docs/statistics.md``, a row as soon as it is measured."""
    _print_table(measure_coverage(), "interval of", "draws", *(f"S = {count}" for count in SEQUENCES))
    rates = list(measure_verdicts())
    order, names = list(dict.fromkeys(rate.what for rate in rates)), {claim.name for claim in CLAIMS}
    rates.sort(key=lambda rate: (order.index(rate.what), list(DRAWS).index(rate.draws)))
    of_pages = ("draws", "S = 8", "S = 16", "S = 24")
    _print_table((rate for rate in rates if rate.what not in names), "with every measure at its threshold", *of_pages)
    of_claims = (rate for rate in rates if rate.what in names and rate.draws != "bounded")
    _print_table(of_claims, "wrong verdict on", *of_pages)
    _print_table(measure_random_weights(), "called significant at 5 %", "in", "share of models")
    rates = sorted(measure_layers(), key=lambda rate: (list(PLANTED).index(rate.what), rate.draws))
    _print_table(rates, "a change over layers", "by", *(f"{count} layers" for count in (6, 12, 18, 30)))
    _print_heading("distance to the threshold, in standard deviations", "sequences needed")
    for distance in (3.0, 2.0, 1.5, 1.0, 0.75, 0.5, 0.25):
        values = np.array([-1.0, 1.0]) / np.sqrt(2) + distance
        print(f"| {distance:g} | {count_sequences_needed(values, 0.0, ERROR_RATE / 2 / len(CLAIMS))} |")


def _print_heading(*cells: str) -> None:
    print("", f"| {' | '.join(cells)} |", f"|{'---|' * len(cells)}", sep="\n", flush=True)


def _print_table(rates: Iterable[Rate], *heading: str) -> None:
    """A table in Markdown, in whose rows rates follow on what is measured and of which draws."""
    _print_heading(*heading)
    remaining = iter(rates)
    while rows := list(islice(remaining, len(heading) - 2)):
        shares = " | ".join(f"{100 * rate.share:.1f} %" for rate in rows)
        print(f"| {rows[0].what} | {rows[0].draws} | {shares} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables that are asked for; exits with 2 and one line if there is no such database."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__.partition("\n")[0])
    parser.add_argument("database", nargs="?", help="of a study, for the table of power (default: all others)")
    path = parser.parse_args(arguments).database
    if path is None:
        print_tables()
        return
    if not Path(path).is_file():
        parser.error(f"There is no file {path}; databases of studies are in DATA/warehouse, once they have landed")
    with duckdb.connect(path, read_only=True) as database:
        rates = list(measure_power(database))
    order = list(dict.fromkeys(rate.what for rate in rates))
    rates.sort(key=lambda rate: order.index(rate.what))
    _print_table(rates, "verdict on", "with 8 sequences", "S = 8", "S = 16", "S = 32")


if __name__ == "__main__":
    main()
