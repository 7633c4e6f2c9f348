"""Measures and claims of a study as rows of their tables: estimates, tests of all claims together, and sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from dagster_project.analysis.claims import (
    bounds,
    effects,
    facts,
    fits,
    kinds,
    layers,
    norms,
    patterns,
    plane,
    regimes,
    separation,
    sink,
)
from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import Claim, Measure, Part
from dagster_project.analysis.claims.sentences import name_part, write_sentence
from geometry.arrays import F64
from geometry.statistics.intervals import SHARE, Estimate, make_estimate
from geometry.statistics.moments import estimate_mean
from geometry.statistics.verdicts import (
    ERROR_RATE,
    LEAST_SEQUENCES,
    Sides,
    compare_with_threshold,
    correct_holm,
    count_sequences_needed,
    join_alternatives,
    join_parts,
)
from storage.warehouse.rows import build_listed

SUBJECTS = (separation, sink, layers, norms, fits, bounds, kinds, plane, patterns, regimes, effects)
"""The modules of measures and claims."""

MEASURES: Mapping[str, Measure] = {name: one for subject in SUBJECTS for name, one in subject.MEASURES.items()}
CLAIMS: tuple[Claim, ...] = tuple(claim for subject in SUBJECTS for claim in subject.CLAIMS)

Row = dict[str, Any]


@dataclass(frozen=True)
class Twin:
    """What is compared of the study of random weights."""

    name: str
    values: Mapping[str, F64]
    """The rows of ``measure_values``, by measure: the number of every sequence, NaN without one."""
    verdicts: Mapping[str, str]
    """The verdict on every claim."""
    measures: Mapping[str, tuple[float, float, float]]
    """Value and interval of every measure."""


@dataclass(frozen=True)
class Judgement:
    """A claim with its tests."""

    claim: Claim
    parts: tuple[tuple[Part, Sample, Sides], ...]
    """The comparisons whose measures exist."""
    reason: str | None
    """Why it is not testable; None if it is."""

    @property
    def sides(self) -> Sides:
        """The test of the claim."""
        joined = join_alternatives if self.claim.alternatives else join_parts
        return joined([sides for _, _, sides in self.parts])


def compute_claims(connection: duckdb.DuckDBPyConnection, twin: Twin | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of the tables of measures, facts and claims, and of what is computed from the same arrays.

    Parameters
    ----------
    connection
        A connection to the database of the study, whose other tables are filled.
    twin
        The study of random weights that it is compared with, if it has landed.
    """
    evidence = Evidence(connection)
    samples = {name: sample for subject in SUBJECTS for name, sample in subject.measure(evidence).items()}
    estimates = {name: estimate_sample(sample, find_measure(name)) for name, sample in samples.items()}
    profiles = layers.compute_profiles(evidence)
    source = facts.FactSources(estimates, profiles, evidence.ends)
    judged = [judge_claim(claim, evidence, samples) for claim in CLAIMS]
    rows: dict[str, Iterable[Row]] = {
        "measure_values": _list_values(samples),
        "measures": _list_measures(samples, estimates, twin),
        "layer_profiles": _list_profiles(profiles),
        "facts": _list_facts(samples, source, twin),
        "claim_parts": _list_parts(judged, estimates),
        "claims": _list_claims(judged, estimates, evidence, twin),
        "loss_associations": effects.correlate_losses(evidence),
        **plane.list_rows(evidence),
    }
    yield from ((table, build_listed(table, of_table)) for table, of_table in rows.items())


def find_measure(name: str) -> Measure:
    """The declaration of a measure; one of several κ or labels is named ``NAME[κ]``."""
    return MEASURES[name.partition("[")[0]]


def estimate_sample(sample: Sample, measure: Measure) -> Estimate:
    """The value of a measure with its interval, on its own scale."""
    spread = estimate_mean(sample.of_sequences)
    middle = float(spread.value) if sample.whole is None else sample.whole
    estimate = make_estimate(middle, spread.error, sample.sequences)
    value, low, high = (
        np.clip(measure.scale.back(end), *measure.domain) for end in (estimate.value, estimate.low, estimate.high)
    )
    return Estimate(value, estimate.error, low, high)


def judge_claim(claim: Claim, evidence: Evidence, samples: Mapping[str, Sample]) -> Judgement:
    """Test a claim."""
    parts = tuple(
        (expanded, samples[expanded.measure], compare_part(expanded, samples[expanded.measure]))
        for part in claim.parts
        for expanded in _expand_part(part, samples)
    )
    return Judgement(claim, parts, _find_reason(claim, parts, evidence, samples))


def _expand_part(part: Part, samples: Mapping[str, Sample]) -> list[Part]:
    """The part for each of the measures that it names: itself, or one for each κ; none that does not exist."""
    names = [name for name in samples if name == part.measure or name.startswith(f"{part.measure}[")]
    return [Part(name, part.direction, part.threshold) for name in names]


def compare_part(part: Part, sample: Sample) -> Sides:
    """Test one comparison."""
    threshold = find_measure(part.measure).scale.forward(part.threshold)
    return sample.compare(threshold, above=part.direction in {">", ">="})


def _find_reason(
    claim: Claim, parts: Sequence[tuple[Part, Sample, Sides]], evidence: Evidence, samples: Mapping[str, Sample]
) -> str | None:
    """Why a claim cannot be tested; None if it can."""
    if (gap := claim.explain_gap(evidence)) is not None:
        return gap
    lacking = [part.measure for part in claim.parts if not _expand_part(part, samples)]
    if not parts or (lacking and not claim.alternatives):
        return f"the study has no {lacking[0]}" if lacking else "its measures do not exist"
    rows = max(sample.rows for _, sample, _ in parts)
    if rows < claim.least_rows:
        return f"it needs {claim.least_rows} {claim.rows_of} and has {rows}"
    sequences = min(sample.sequences for _, sample, _ in parts)
    if sequences < LEAST_SEQUENCES:
        return f"{sequences} sequence{'s' if sequences != 1 else ''} measured, {LEAST_SEQUENCES} are needed"
    return None


def _list_values(samples: Mapping[str, Sample]) -> Iterator[Row]:
    """The rows of ``measure_values``."""
    for name, one in samples.items():
        for sequence in np.flatnonzero(~np.isnan(one.of_sequences)).tolist():
            yield {"measure": name, "sequence": sequence, "value": float(one.of_sequences[sequence])}


def _list_measures(
    samples: Mapping[str, Sample], estimates: Mapping[str, Estimate], twin: Twin | None
) -> Iterator[Row]:
    """The rows of ``measures``."""
    for name, sample in samples.items():
        yield {
            "measure": name,
            "meaning": find_measure(name).meaning,
            **_name_ends("value", estimates[name]),
            "rows": sample.rows,
            "sequences": sample.sequences,
            **_compare_with_twin(name, sample, twin),
        }


def _compare_with_twin(name: str, sample: Sample, twin: Twin | None) -> Row:
    """Columns of the twin's value and the difference, paired by sequence; empty without one."""
    if twin is None or name not in twin.measures:
        return {}
    value, low, high = twin.measures[name]
    apart = pair_sequences(sample.of_sequences, twin.values[name])
    return {
        "twin_value": value,
        "twin_low": low,
        "twin_high": high,
        **_name_ends("twin_difference", estimate_mean(apart)),
        "twin_p": compare_with_threshold(apart, 0.0, above=True).p,
    }


def pair_sequences(one: F64, other: F64) -> F64:
    """Differences in the sequences that both have, (S,)."""
    both = min(len(one), len(other))
    return one[:both] - other[:both]


def _name_ends(name: str, estimate: Estimate) -> dict[str, float]:
    """Columns of an estimate and the ends of its interval."""
    return {column: float(end) for column, end in estimate.name_ends(name).items()}


def _list_profiles(profiles: Mapping[str, layers.Profile]) -> Iterator[Row]:
    """The rows of ``layer_profiles``."""
    for quantity, profile in profiles.items():
        for place, layer in enumerate(profile.layers.tolist()):
            yield {
                "quantity": quantity,
                "layer": layer,
                **_name_ends("value", estimate_mean(profile.values[:, place], SHARE)),
                "is_after_step": None if profile.step is None else place >= profile.step.place,
            }


def _list_facts(samples: Mapping[str, Sample], source: facts.FactSources, twin: Twin | None) -> Iterator[Row]:
    """The rows of ``facts``: every fact that could be tested, with the place at which a page tells it."""
    tested = [
        (fact, samples[fact.measure])
        for fact in facts.FACTS
        if fact.measure in samples and samples[fact.measure].sequences >= LEAST_SEQUENCES
    ]
    p = {fact.name: compare_part(Part(fact.measure, ">"), sample).p for fact, sample in tested}
    effects = {fact.name: _compute_effect(fact.measure, sample, source, twin) for fact, sample in tested}
    places = facts.rank_facts(p, effects)
    for fact, _ in tested:
        yield {
            "fact": fact.name,
            "subject": fact.subject,
            "measure": fact.measure,
            "sentence": fact.write(source) if fact.name in places else None,
            **_name_ends("value", source.estimates[fact.measure]),
            "p": p[fact.name],
            "effect": effects[fact.name],
            "place": places.get(fact.name),
            "shown_by": fact.shown_by,
        }


def _compute_effect(measure: str, sample: Sample, source: facts.FactSources, twin: Twin | None) -> float:
    """How far a measure is certain to be from 0 and from the twin's, in its direction; at most 0 if it may be there."""
    estimate = source.estimates[measure]
    sign = 1 if estimate.value > 0 else -1
    ends = [sign * estimate.low, sign * estimate.high]
    effect = float(min(ends))
    if twin is None or measure not in twin.values:
        return effect
    apart = estimate_mean(pair_sequences(sample.of_sequences, twin.values[measure]))
    return float(np.nanmin([effect, sign * apart.low, sign * apart.high]))


def _list_parts(judged: Sequence[Judgement], estimates: Mapping[str, Estimate]) -> Iterator[Row]:
    """The rows of ``claim_parts``; parts whose measures do not exist have no value."""
    for one in judged:
        tested = [(part, sides) for part, _, sides in one.parts]
        for place, (part, sides) in enumerate(tested or [(part, None) for part in one.claim.parts]):
            row: Row = {"claim": one.claim.name, "part": place, **vars(part), "is_alternative": one.claim.alternatives}
            row["label"] = name_part(one.claim, part, find_measure(part.measure))
            if sides is not None:
                row |= _name_ends("value", estimates[part.measure])
                row |= {"p_supports": sides.supports, "p_opposes": sides.opposes}
            yield row


def _list_claims(
    judged: Sequence[Judgement], estimates: Mapping[str, Estimate], evidence: Evidence, twin: Twin | None
) -> Iterator[Row]:
    """The rows of ``claims``."""
    testable = [one for one in judged if one.reason is None]
    corrected = dict(
        zip([one.claim.name for one in testable], correct_holm(one.sides.p for one in testable), strict=True)
    )
    for one in judged:
        p_holm = corrected.get(one.claim.name)
        verdict = "not testable" if p_holm is None else one.sides.side if p_holm <= ERROR_RATE else "undecided"
        needed = None if p_holm is None else _count_needed(one, len(testable))
        shown = [(part, find_measure(part.measure), estimates[part.measure]) for part, _, _ in one.parts]
        yield {
            "claim": one.claim.name,
            "source": one.claim.source,
            "statement": one.claim.statement,
            "verdict": verdict,
            "sentence": write_sentence(one.claim, verdict, shown, one.reason, needed),
            "p": None if p_holm is None else one.sides.p,
            "p_holm": p_holm,
            "sequences": evidence.sequences,
            "sequences_needed": needed,
            "rows": max((sample.rows for _, sample, _ in one.parts), default=0),
            "rows_of": one.claim.rows_of,
            "premise": one.claim.premise,
            "reason": one.reason,
            "shown_by": one.claim.shown_by,
            "twin": twin and twin.name,
            "twin_verdict": twin and twin.verdicts.get(one.claim.name),
            "beyond_twin": _is_beyond(one, twin) if verdict == "supported" and twin is not None else None,
        }


def _count_needed(one: Judgement, claims: int) -> int | None:
    """The number of sequences that would decide a claim: the most of its parts, or of alternatives the fewest.

    A claim that is not supported needs one part that fails.
    """
    numbers = [
        count_sequences_needed(sample.of_sequences, find_measure(part.measure).scale.forward(part.threshold), claims)
        for part, sample, _ in one.parts
    ]
    known = [number for number in numbers if number is not None]
    fewest = (one.sides.side == "supported") == one.claim.alternatives
    if fewest:
        return min(known, default=None)
    return max(known) if len(known) == len(numbers) else None


def _is_beyond(one: Judgement, twin: Twin) -> bool | None:
    """Whether the measures of a supported claim differ from the twin's in its direction, at 5 %.

    None if the claim cannot be tested on the twin: where it lacks what the claim presupposes, its measures say nothing.
    """
    if twin.verdicts.get(one.claim.name, "not testable") == "not testable":
        return None
    pairs = [
        (part, pair_sequences(sample.of_sequences, twin.values[part.measure]))
        for part, sample, _ in one.parts
        if part.measure in twin.values
    ]
    if len(pairs) < len(one.parts):
        return None
    sides = [compare_with_threshold(apart, 0.0, above=part.direction in {">", ">="}) for part, apart in pairs]
    joined = join_alternatives(sides) if one.claim.alternatives else join_parts(sides)
    return joined.supports <= ERROR_RATE / 2
