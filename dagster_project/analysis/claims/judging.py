"""Measures and claims of a study as rows of their tables: estimates, tests of all claims together, and sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
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
    queries,
    separation,
    sink,
)
from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.queries import EVERY
from dagster_project.analysis.claims.records import Claim, Measure, Part
from dagster_project.study.home import Home
from geometry.arrays import F64
from geometry.statistics.arrangements import End, settle
from geometry.statistics.intervals import SHARE, Estimate, estimate_mean, make_estimate
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
from reports.findings.claims import BEYOND, format_threshold
from reports.findings.numbers import count, format_with_interval, join_words
from storage.warehouse.connection import connect, locate_database
from storage.warehouse.rows import build_listed

SUBJECTS = (separation, sink, layers, norms, fits, bounds, kinds, plane, patterns, queries, effects)
"""The modules of measures and claims."""

MEASURES: Mapping[str, Measure] = {name: one for subject in SUBJECTS for name, one in subject.MEASURES.items()}
CLAIMS: tuple[Claim, ...] = tuple(claim for subject in SUBJECTS for claim in subject.CLAIMS)

Row = dict[str, Any]


@dataclass(frozen=True)
class Twin:
    """What is compared of the study of random weights."""

    name: str
    values: Mapping[str, F64]  # By measure: the number of every sequence, NaN without one
    verdicts: Mapping[str, str]  # The verdict on every claim
    measures: Mapping[str, tuple[float, float, float]]  # Value and interval of every measure


@dataclass(frozen=True)
class Requirement:
    """What would decide a claim."""

    sequences: int | None = None  # Number of sequences; None if no number would
    limited_by: str | None = None  # What of the model there is too little of, whatever the number of sequences


@dataclass(frozen=True)
class Judgement:
    """A claim with its tests."""

    claim: Claim
    parts: tuple[tuple[Part, Sample, Sides], ...]  # The comparisons whose measures exist
    reason: str | None  # Why it is not testable; None if it is
    beside: Mapping[str, Sample] = field(default_factory=dict)
    """At the last query, the measures that are judged at every query; told, not judged."""

    @property
    def sides(self) -> Sides:
        """The test of the claim."""
        joined = join_alternatives if self.claim.alternatives else join_parts
        return joined([sides for _, _, sides in self.parts])

    def test_again(self, end: End = "value") -> "Judgement":
        """The same with the random arrangements drawn since, or with an end of the interval of their p values."""
        return replace(self, parts=tuple((part, one, compare_part(part, one, end)) for part, one, _ in self.parts))


def read_twin(home: Home, name: str | None) -> Twin | None:
    """The measures of a landed twin; None if the study has none, or it has not landed with measures."""
    if name is None or not locate_database(home.warehouse, name).exists():
        return None
    columns = ("claim, verdict FROM claims", "measure, of_sequences, value, value_low, value_high FROM measures")
    with closing(connect(home.warehouse, studies=[name], described=False)) as connection:
        verdicts, measures = (
            connection.execute(f"SELECT {some} WHERE study = $study", {"study": name}).fetchall() for some in columns
        )
    values = {measure: np.array(numbers, np.float64) for measure, numbers, *_ in measures}
    ends = {measure: (value, low, high) for measure, _, value, low, high in measures}
    return Twin(name, values, dict(verdicts), ends) if verdicts else None


def compute_claims(connection: duckdb.DuckDBPyConnection, twin: Twin | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of the tables of measures, facts and claims, and of what is computed from the same arrays.

    ``connection``: to the database of the study, whose other tables are filled; ``twin``: the study of random weights
    that it is compared with, if it has landed.
    """
    evidence = Evidence(connection)
    samples = measure_study(evidence, twin)
    estimates = {name: estimate_sample(sample, find_measure(name)) for name, sample in samples.items()}
    profiles = layers.compute_profiles(evidence)
    source = facts.FactSources(estimates, profiles, evidence.ends)
    judged = settle_claims([judge_claim(claim, evidence, samples) for claim in CLAIMS])
    verdicts = dict.fromkeys((one.claim.name for one in judged), "not testable") | decide_claims(judged)
    level = ERROR_RATE / max(1, sum(verdict == "undecided" for verdict in verdicts.values()))
    rows: dict[str, Iterable[Row]] = {
        "measures": _list_measures(samples, estimates, twin),
        "layer_profiles": _list_profiles(profiles),
        "facts": _list_facts(samples, source, twin),
        "claim_parts": _list_parts(judged, estimates, verdicts, level),
        "claims": _list_claims(judged, estimates, evidence, twin, verdicts, level),
        "loss_associations": effects.correlate_losses(evidence),
        "query_means": queries.list_rows(evidence),
        **plane.list_rows(evidence),
    }
    yield from ((table, build_listed(table, of_table)) for table, of_table in rows.items())


def measure_study(evidence: Evidence, twin: Twin | None) -> dict[str, Sample]:
    """All measures of a study."""
    samples = {name: sample for subject in SUBJECTS for name, sample in subject.measure(evidence).items()}
    return samples if twin is None else samples | subtract_twin(samples, twin)


def subtract_twin(samples: Mapping[str, Sample], twin: Twin) -> dict[str, Sample]:
    """The measures that are differences from the twin, of the sequences that both have."""
    known = {name: name.removesuffix(BEYOND) for name in MEASURES if name.endswith(BEYOND)}
    return {
        name: Sample(pair_sequences(samples[of].of_sequences, twin.values[of]), samples[of].rows)
        for name, of in known.items()
        if of in samples and of in twin.values
    }


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
    names = [part.measure.removesuffix(EVERY) for part, _, _ in parts if part.measure.endswith(EVERY)]
    last = {name: samples[name] for name in names if name in samples}
    return Judgement(claim, parts, _find_reason(claim, parts, evidence, samples), last)


def _expand_part(part: Part, samples: Mapping[str, Sample]) -> list[Part]:
    """The part for each of the measures that it names: itself, or one for each κ; none that does not exist.

    Of a measure of heads it is that of every query, in a study that has it.
    """
    if (every := f"{part.measure}{EVERY}") in samples:
        return [replace(part, measure=every)]
    names = [name for name in samples if name == part.measure or name.startswith(f"{part.measure}[")]
    return [Part(name, part.direction, part.threshold) for name in names]


def scale_threshold(part: Part) -> float:
    """The threshold of a part on the scale of its measure."""
    return find_measure(part.measure).scale.forward(part.threshold)


def compare_part(part: Part, sample: Sample, end: End = "value") -> Sides:
    """Test one comparison."""
    return sample.compare(scale_threshold(part), above=part.above, end=end)


def settle_claims(judged: Sequence[Judgement]) -> list[Judgement]:
    """Draw random arrangements until no verdict depends on their luck, and test the claims with all that were drawn.

    Their p values are those that the verdicts follow from: the upper ends, so that what is left to luck is undecided.
    """
    arrangements = {
        one.claim.name: [sample.arranged for _, sample, _ in one.parts if sample.arranged is not None]
        for one in judged
        if one.reason is None
    }
    settle(arrangements, lambda end: decide_claims([one.test_again(end) for one in judged]))
    return [one.test_again("high") for one in judged]


def decide_claims(judged: Sequence[Judgement]) -> dict[str, str]:
    """The verdicts on the claims that could be tested, after Holm's correction for all of them, by name."""
    corrected = correct_claims(judged)
    return {
        name: one.sides.side if corrected[name] <= ERROR_RATE else "undecided"
        for one in judged
        if (name := one.claim.name) in corrected
    }


def correct_claims(judged: Sequence[Judgement]) -> dict[str, float]:
    """The p values of the claims that could be tested, after Holm's correction for all of them, by name."""
    testable = [one for one in judged if one.reason is None]
    corrected = correct_holm(one.sides.p for one in testable)
    return {one.claim.name: p for one, p in zip(testable, corrected, strict=True)}


def decide_parts(one: Judgement, verdict: str, level: float) -> list[str]:
    """The verdicts on the parts of a claim: that of the claim if it needs all of them, else by each part's own p value.

    That is multiplied by the number of parts, as where one of them decides the claim, so that the verdict on the claim
    follows from those on its parts. ``level``: the largest two-sided p value of a verdict, what Holm's correction asks
    of the claims that are left undecided.
    """
    number = max(1, len(one.parts))
    if verdict in {"not testable", "not supported" if one.claim.alternatives else "supported"}:
        return [verdict] * (len(one.parts) or len(one.claim.parts))
    return [sides.side if number * sides.p <= level else "undecided" for _, _, sides in one.parts]


def _find_reason(
    claim: Claim, parts: Sequence[tuple[Part, Sample, Sides]], evidence: Evidence, samples: Mapping[str, Sample]
) -> str | None:
    """Why a claim cannot be tested; None if it can."""
    if (gap := claim.explain_gap(evidence)) is not None:
        return gap
    lacking = [part.measure for part in claim.parts if not _expand_part(part, samples)]
    if lacking and lacking[0].endswith(BEYOND):
        return "the study has no model of random weights to compare with"
    if not parts or (lacking and not claim.alternatives):
        return f"the study has no {lacking[0]}" if lacking else "its measures do not exist"
    rows = max(sample.rows for _, sample, _ in parts)
    if rows < claim.least_rows:
        return f"it needs {claim.least_rows} {claim.rows_of} and has {rows}"
    sequences = min(sample.sequences for _, sample, _ in parts)
    if sequences < LEAST_SEQUENCES:
        return f"{count(sequences, 'sequence')} measured, {LEAST_SEQUENCES} are needed"
    return None


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
            "of_sequences": [None if np.isnan(one) else one for one in sample.of_sequences.tolist()],
            "draws": sample.arranged and sample.arranged.draws,
            "seed": sample.arranged and sample.arranged.seed,
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
        for layer, values in zip(profile.layers.tolist(), profile.values.T, strict=True):
            yield {"quantity": quantity, "layer": layer, **_name_ends("value", estimate_mean(values, SHARE))}


def _list_facts(samples: Mapping[str, Sample], source: facts.FactSources, twin: Twin | None) -> Iterator[Row]:
    """The rows of ``facts``: every fact that could be tested, with the place at which a page tells it."""
    tested = {
        fact: samples[fact.measure]
        for fact in facts.FACTS
        if fact.measure in samples and samples[fact.measure].sequences >= LEAST_SEQUENCES and fact.applies(source)
    }
    effects = {fact.name: _compute_effect(fact, sample, source, twin) for fact, sample in tested.items()}

    def rank(end: End) -> dict[str, int | None]:
        places = facts.rank_facts({fact.name: _test_fact(sample, end) for fact, sample in tested.items()}, effects)
        return {fact.name: places.get(fact.name) for fact in tested}

    settle({fact.name: [sample.arranged] for fact, sample in tested.items() if sample.arranged is not None}, rank)
    places = rank("high")
    for fact, sample in tested.items():
        yield {
            "fact": fact.name,
            "subject": fact.subject,
            "measure": fact.measure,
            "sentence": None if places[fact.name] is None else fact.write(source),
            **_name_ends("value", source.estimates[fact.measure]),
            "p": _test_fact(sample, "high"),
            "effect": effects[fact.name],
            "place": places[fact.name],
            "shown_by": fact.shown_by,
        }


def _test_fact(sample: Sample, end: End) -> float:
    """The p value of a measure against 0."""
    return sample.compare(0.0, above=True, end=end).p


def _compute_effect(fact: facts.Fact, sample: Sample, source: facts.FactSources, twin: Twin | None) -> float | None:
    """How far a measure is certain to be from 0 and from the twin's, in its direction; at most 0 if it may be there.

    None without a twin that has the measure, if the fact needs one.
    """
    estimate = source.estimates[fact.measure]
    sign = 1 if estimate.value > 0 else -1
    ends = [float(sign * end) for end in (estimate.low, estimate.high)]
    if twin is None or fact.measure not in twin.values:
        return None if fact.needs_twin else min(ends)
    apart = estimate_mean(pair_sequences(sample.of_sequences, twin.values[fact.measure]))
    return float(np.nanmin([*ends, sign * apart.low, sign * apart.high]))


def _list_parts(
    judged: Sequence[Judgement], estimates: Mapping[str, Estimate], verdicts: Mapping[str, str], level: float
) -> Iterator[Row]:
    """The rows of ``claim_parts``; parts whose measures do not exist have no value."""
    for one in judged:
        tested: list[tuple[Part, Sides | None]] = [(part, sides) for part, _, sides in one.parts]
        tested = tested or [(part, None) for part in one.claim.parts]
        of_parts = decide_parts(one, verdicts[one.claim.name], level)
        for place, ((part, sides), verdict) in enumerate(zip(tested, of_parts, strict=True)):
            row: Row = {"claim": one.claim.name, "part": place, **vars(part), "is_alternative": one.claim.alternatives}
            row |= {"verdict": verdict, "label": name_part(one.claim, part)}
            if sides is not None:
                row |= _name_ends("value", estimates[part.measure])
                row |= {"p_supports": sides.supports, "p_opposes": sides.opposes}
            yield row


def _list_claims(
    judged: Sequence[Judgement],
    estimates: Mapping[str, Estimate],
    evidence: Evidence,
    twin: Twin | None,
    verdicts: Mapping[str, str],
    level: float,
) -> Iterator[Row]:
    """The rows of ``claims``."""
    corrected = correct_claims(judged)
    for one in judged:
        verdict = verdicts[one.claim.name]
        need = count_needed(one, level / 2) if verdict == "undecided" else Requirement()
        yield {
            "claim": one.claim.name,
            "source": one.claim.source,
            "statement": one.claim.statement,
            "verdict": verdict,
            "sentence": write_sentence(one, verdict, estimates, need),
            "p": None if one.reason is not None else one.sides.p,
            "p_holm": corrected.get(one.claim.name),
            "sequences": evidence.sequences,
            "sequences_needed": need.sequences,
            "limited_by": need.limited_by,
            "rows": max((sample.rows for _, sample, _ in one.parts), default=0),
            "rows_of": one.claim.rows_of,
            "premise": one.claim.premise,
            "reason": one.reason,
            "shown_by": one.claim.shown_by,
            "twin": twin and twin.name,
            "twin_verdict": None if twin is None or one.claim.exceeds_twin else twin.verdicts.get(one.claim.name),
            "beyond_twin": _is_beyond(one, twin) if verdict == "supported" and twin is not None else None,
        }


def count_needed(one: Judgement, level: float) -> Requirement:
    """What would decide an undecided claim, if its estimates and their spread stayed as they are.

    If they are all on the supporting side, every part needs a p value of ``level``; if not, one of those on the other
    side needs one of ``level`` over the number of parts. Of alternatives it is the reverse.
    """
    sides = [
        (sample.value >= scale_threshold(part) if part.above else sample.value <= scale_threshold(part))
        for part, sample, _ in one.parts
    ]
    supports = any(sides) if one.claim.alternatives else all(sides)
    if supports != one.claim.alternatives:
        needs = [_count_part(part, sample, level, supports) for part, sample, _ in one.parts]
        short = [need for need in needs if need.sequences is None]
        return short[0] if short else max(needs, key=lambda need: need.sequences or 0)
    needs = [
        _count_part(part, sample, level / len(sides), supports)
        for (part, sample, _), side in zip(one.parts, sides, strict=True)
        if side == supports
    ]
    known = [need for need in needs if need.sequences is not None]
    return min(known, key=lambda need: need.sequences or 0) if known else needs[0]


def _count_part(part: Part, sample: Sample, level: float, supports: bool) -> Requirement:
    """What would give one part a one-sided p value of ``level``; its arrangements must already have one."""
    threshold, arranged = scale_threshold(part), sample.arranged
    counts = supports or threshold == 0
    if arranged is not None and counts and arranged.p(above=part.above == supports, end="high") > level:
        return Requirement(limited_by=arranged.what)
    return Requirement(count_sequences_needed(sample.of_sequences, threshold, level, value=sample.value))


def _is_beyond(one: Judgement, twin: Twin) -> bool | None:
    """Whether the measures of a supported claim differ from the twin's in its direction, at 5 %.

    One with parts that are such differences says so itself. A twin that leaves every query out is compared at the last
    one. None if the claim cannot be tested on the twin: where it lacks what the claim presupposes, its measures say
    nothing.
    """
    if one.claim.exceeds_twin:
        return True
    if twin.verdicts.get(one.claim.name, "not testable") == "not testable":
        return None
    own = {part.measure: sample for part, sample, _ in one.parts} | dict(one.beside)
    pairs = [
        (part, pair_sequences(own[name].of_sequences, twin.values[name]))
        for part, _, _ in one.parts
        for name in [name for name in (part.measure, part.measure.removesuffix(EVERY)) if name in twin.values][:1]
    ]
    if len(pairs) < len(one.parts):
        return None
    sides = [compare_with_threshold(apart, 0.0, above=part.above) for part, apart in pairs]
    joined = join_alternatives(sides) if one.claim.alternatives else join_parts(sides)
    return joined.supports <= ERROR_RATE / 2


def write_sentence(one: Judgement, verdict: str, estimates: Mapping[str, Estimate], need: Requirement) -> str:
    """The sentence of a claim."""
    claim = one.claim
    if verdict == "not testable":
        return f"Whether {claim.clause} cannot be tested: {one.reason}."
    told = "; ".join(f"{find_measure(name).label}: {format_estimate(estimates[name])}" for name in one.beside)
    numbers = _format_parts(one, estimates) + (f"; not judged, {told}" if told else "")
    if verdict == "undecided":
        waits = f"; about {need.sequences:,} sequences would decide" if need.sequences is not None else ""
        if need.limited_by is not None:
            waits = f"; limited by the model’s {need.limited_by}, not by the text"
        return f"Whether {claim.clause} is undecided ({numbers}{waits})."
    clause = claim.clause if verdict == "supported" else claim.denial
    return f"{clause[0].upper()}{clause[1:]} ({numbers})."


def _format_parts(one: Judgement, estimates: Mapping[str, Estimate]) -> str:
    """The numbers of a claim, each once, with its name and interval, and what is required of them."""
    required: dict[str, list[str]] = {}
    for part, _, _ in one.parts:
        number = f"{name_part(one.claim, part)}: {format_estimate(estimates[part.measure])}"
        required.setdefault(number, []).append(format_threshold(vars(part)))
    thresholds = [join_words(several) for several in required.values()]
    if one.claim.alternatives:
        label = find_measure(one.parts[0][0].measure).label
        return f"{label}, {'; '.join(required)}; {thresholds[0]} required at one"
    if len(set(thresholds)) == 1:
        return f"{'; '.join(required)}; {thresholds[0]} required{' of each' if len(required) > 1 else ''}"
    return "; ".join(f"{number}, {threshold} required" for number, threshold in zip(required, thresholds, strict=True))


def name_part(claim: Claim, part: Part) -> str:
    """What tells a part of a claim from the others: of alternatives its κ, else its measure."""
    _, _, kappa = part.measure.removesuffix("]").partition("[")
    return f"κ = {kappa}" if claim.alternatives and kappa else find_measure(part.measure).label


def format_estimate(estimate: Estimate) -> str:
    """An estimate with its interval, if it has one."""
    value, low, high = (float(end) for end in (estimate.value, estimate.low, estimate.high))
    return format_with_interval(value, *((None, None) if np.isnan(low) else (low, high)))
