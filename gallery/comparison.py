"""Models beside one another: the verdicts on each claim, and in which measures they differ."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import altair as alt
from scipy import stats

from geometry.statistics.intervals import make_estimate
from geometry.statistics.verdicts import ERROR_RATE, correct_holm
from reports.families.charts import separation_and_chance
from reports.findings.claims import BEYOND, format_interval
from reports.findings.numbers import Row, count, join_words, percent
from reports.headlines.findings import Separation, judge_separation

EMBEDDED = "embedded"

MODELS = {"smollm2": "SmolLM2", "gemma3": "Gemma 3", "qwen2": "Qwen2.5-Coder", EMBEDDED: "the embedded model"}
"""The models of the text, by the part about them."""

PICTURE = "separation.png"

ROUNDED = 1e-12  # Share of a value by which rounding moves it

VALUE, TWIN = ("value", "value_low", "value_high"), ("twin_value", "twin_low", "twin_high")
"""Columns of a measure and of the same of the twin."""

POINTS = {
    "recall_compared": ("recall_compared", VALUE),
    "recall_of_random": ("recall_of_random", VALUE),
    "recall_of_shuffled": ("recall_of_shuffled", VALUE),
    "recall_compared_of_twin": ("recall_compared", TWIN),
}
"""Of the picture, with the measures and columns that they show."""


@dataclass(frozen=True)
class Model:
    """What has been found in one model."""

    part: str  # The part of the text about it
    name: str
    study: Row
    claims: Mapping[str, Row]
    measures: Mapping[str, Row]
    values: Mapping[str, Sequence[float]]
    """The numbers of the sequences behind each measure, on the scale on which it is tested."""

    @property
    def separation(self) -> Separation:
        """Whether its heads separate what they select."""
        return judge_separation(
            self.study, [*self.claims.values()], [*self.measures.values()], self.study["twin_sequences"]
        )

    def holds(self, claim: str) -> bool | None:
        """Whether a claim holds; None if it is undecided or cannot be tested."""
        return {"supported": True, "not supported": False}.get(self.claims[claim]["verdict"])


def read_models(tables: Mapping[str, Sequence[Row]]) -> list[Model]:
    """The models of which there are tables."""
    models = []
    for part, name in ((part, name) for part, name in MODELS.items() if f"{part}.measures" in tables):
        values: dict[str, list[float]] = {}
        for row in tables[f"{part}.values"]:
            values.setdefault(row["measure"], []).append(row["value"])
        (study,) = tables[f"{part}.study"]
        claims, measures = ({row[key]: row for row in tables[f"{part}.{key}s"]} for key in ("claim", "measure"))
        models.append(Model(part, name, study, claims, measures, values))
    return models


def spread(holds: Mapping[str, bool | None]) -> str:
    """Say of which models something holds, and of which that is not known: ``in A and B (not known in C)``."""
    held, unknown = ([name for name, one in holds.items() if one is kind] for kind in (True, None))
    where = "in all" if len(held) == len(holds) > 1 else f"in {join_words(held or ['none'])}"
    return where + (f" (not known in {join_words(unknown)})" if unknown else "")


def spread_claim(models: Sequence[Model], claim: str) -> str:
    """Say in which models a claim holds, as ``spread``."""
    return spread({model.name: model.holds(claim) for model in models})


def list_shares(models: Sequence[Model], measure: str) -> str:
    """A measure of each model that has it, as a percentage."""
    given = [(model.measures[measure]["value"], model.name) for model in models if measure in model.measures]
    return join_words([f"{percent(value)} in {name}" for value, name in given if value is not None])


def count_supported(models: Sequence[Model]) -> str:
    """How many claims hold in all, in some and in no model, and which go beyond random weights."""
    shared = [claim for claim in models[0].claims if all(claim in model.claims for model in models)]
    held = [sum(model.holds(claim) is True for model in models) for claim in shared]
    counted = [f"{len(shared) - held.count(0) - held.count(len(models))} in some", f"{held.count(0)} in none"]
    beyond = {
        claim: [model.name for model in models if model.claims[claim]["beyond_twin"]]
        for claim in models[0].claims
        if claim in shared
    }
    named = [f"“{models[0].claims[claim]['statement']}” in {join_words(of)}" for claim, of in beyond.items() if of]
    return (
        f"Of {count(len(shared), 'claim')} of the paper, {held.count(len(models)) or 'none'} hold in all "
        f"{len(models)} models, {join_words(counted)}; beyond what random weights of the same architecture show, "
        f"{join_words(named or ['none'])}."
    )


def tell_separation(models: Sequence[Model]) -> str:
    """Beside which controls the heads of each model separate what they select."""
    controls = {model.name: model.separation.controls for model in models}
    told = [
        f"than {control} {spread({name: of[place].is_worse for name, of in controls.items()})}"
        for place, control in enumerate(("keys at random", "shuffled value states", "random weights"))
    ]
    answers: dict[str, list[str]] = {}
    for model in models:
        answers.setdefault(model.separation.answer.lower(), []).append(model.name)
    given = [f"“{answer}” for {join_words(names)}" for answer, names in answers.items()]
    return (
        "Whether the geometry of its heads separates what they select is answered "
        f"{join_words(given)}; it does better {join_words(told)}."
    )


def tell_differences(models: Sequence[Model]) -> str:
    """In how many measures each two language models differ, and on how many claims their verdicts are opposite."""
    pairs = pair_models(models)
    if not pairs:
        return "One model tells nothing about others."
    rows = compare_measures(models)
    apart = [sum(row["p"][place] <= ERROR_RATE for row in rows) for place in range(len(pairs))]
    (first, *others), by = [f"{one.name} and {other.name}" for one, other in pairs], iter(apart)
    differ = [f"{first} differ in {next(by)}", *(f"{pair} in {next(by)}" for pair in others)]
    *some, last = [len(list_opposite(pair)) for pair in pairs]
    return (
        f"By more than their texts explain, {join_words(differ)} of {count(len(rows), 'measure')} behind the claims; "
        f"their verdicts are opposite on {join_words([*map(str, some), count(last, 'claim')])}."
    )


def format_mean(row: Row, name: str) -> str:
    """A mean with its interval, from its standard error over the ``sequences`` of a row."""
    low, high = _find_ends(row, name)
    return format_interval({"value": row[name], "low": low, "high": high})


def _find_ends(row: Row, name: str) -> tuple[float, float]:
    estimate = make_estimate(row[name], row[f"{name}_error"], row["sequences"])
    return float(estimate.low), float(estimate.high)


def tell_last_query(name: str, rows: Sequence[Row], measures: Mapping[str, str]) -> str:
    """In which measures the last query of a model lies above, below and not for certain apart from all queries."""
    ends = {measures[row["measure"]]: _find_ends(row, "difference") for row in rows if row["measure"] in measures}
    sides = {
        "higher": [said for said, (low, _) in ends.items() if low > 0],
        "lower": [said for said, (_, high) in ends.items() if high < 0],
        "not for certain different": [said for said, (low, high) in ends.items() if low <= 0 <= high],
    }
    told = [f"{side} in {join_words(said)}" for side, said in sides.items() if said]
    return f"In {name} the last query is {join_words(told)}."


def select_language_models(models: Sequence[Model]) -> list[Model]:
    """The models of language, which are compared with one another."""
    return [model for model in models if model.part != EMBEDDED]


def pair_models(models: Sequence[Model]) -> list[tuple[Model, Model]]:
    """Each two of the language models."""
    return [*combinations(select_language_models(models), 2)]


def list_opposite(models: Sequence[Model]) -> list[str]:
    """The claims that hold in one of the models and not in another."""
    return [
        claim
        for claim in models[0].claims
        if all(claim in model.claims for model in models) and {True, False} <= {model.holds(claim) for model in models}
    ]


def compare_measures(models: Sequence[Model]) -> list[Row]:
    """The measures behind the claims that all language models can test, the largest relative differences first.

    Each has the row ``of`` each model and ``p`` of each of ``pair_models``: Welch's, over sequences, of the numbers
    that measures are tested by, after Holm's correction for all rows and pairs: whether two models differ on texts
    like these. Each is one model of its family.
    """
    compared = select_language_models(models)
    shared = sorted(set.intersection(*map(_list_tested, compared)))
    tested = {
        (name, place): float(stats.ttest_ind(one.values[name], other.values[name], equal_var=False).pvalue)
        for place, (one, other) in enumerate(pair_models(models))
        for name in shared
    }
    known = {key: p for key, p in tested.items() if not math.isnan(p)}
    corrected = dict(zip(known, correct_holm(known.values()), strict=True))
    rows = [
        {
            "measure": name,
            "of": [model.measures[name] for model in compared],
            "p": [corrected[name, place] for place in range(len(pair_models(models)))],
        }
        for name in shared
        if {key for key in tested if key[0] == name} <= {*known}
    ]
    return sorted(rows, key=_measure_difference, reverse=True)


def _list_tested(model: Model) -> set[str]:
    """The measures of a model behind claims that it can test, whose values vary over sequences."""
    behind = {
        part["measure"]
        for claim in model.claims.values()
        if claim["verdict"] != "not testable"
        for part in claim["parts"]
        if not part["measure"].endswith(BEYOND)
    }
    known = {name: model.values.get(name) for name in behind if name in model.measures}
    return {
        name  # of values that differ by more than their rounding, as a test of means needs
        for name, some in known.items()
        if some and max(some) - min(some) > ROUNDED * max(map(abs, some))
    }


def _measure_difference(row: Row) -> float:
    """The largest difference between two models, as a share of the sum of both sizes."""
    values: list[float] = [of["value"] for of in row["of"]]
    return max(abs(one - other) / ((abs(one) + abs(other)) or 1.0) for one, other in combinations(values, 2))


def draw_separation(models: Sequence[Model]) -> alt.LayerChart:
    """Recall of each model beside random keys, shuffled value states and random weights."""
    rows = [
        {"label": model.name, "member": place, "axis": "model", "quantity": point}
        | {name: model.measures[measure][column] for name, column in zip(VALUE, columns, strict=True)}
        for place, model in enumerate(models)
        for point, (measure, columns) in POINTS.items()
        if measure in model.measures
    ]
    chart: alt.LayerChart = separation_and_chance(rows, "recall", "Recall", ordered=False)
    return chart.properties(width=520)
