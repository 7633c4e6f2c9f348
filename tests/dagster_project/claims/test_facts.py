"""Facts of made-up models: told where they are there, in the order of what is certain, and otherwise not."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dagster_project.analysis.claims import separation
from dagster_project.analysis.claims.evidence import Sample
from dagster_project.analysis.claims.facts import FACTS
from dagster_project.analysis.claims.judging import MEASURES, compute_claims
from geometry.statistics.arrangements import build_shapes, measure_change
from tests.dagster_project.claims import judged
from tests.dagster_project.claims.judged import NOTHING, Rows, key, make_twin
from tests.dagster_project.claims.made_up import QUERY, make_evidence, make_tables

compute = partial(judged.compute, effects=False)
"""The tables of a made-up model without effects, of which no fact tells and which take half of the time."""

LOW, HIGH = 0.1, 1.8
STEP = {"layers": 12, "deeper": (LOW, LOW, HIGH, HIGH, HIGH, HIGH)}
SEVERAL = {**STEP, "shorter": 0.2, "labels": ("TTTTOOOO",) * 2 + ("OOOOOOOO",) * 4}
"""A model with facts of several subjects."""

FULL = (5, 11, 17)
MIXED = {
    "layers": 18,
    "local": [layer for layer in range(18) if layer not in FULL],
    "deeper": [{5: 1.3, 11: 1.2, 17: 1.7}.get(layer, 0.25) for layer in range(18)],
}
"""A model whose layers of full attention, of which the last layer is one, rest on the sink."""

MODELS: list[tuple[dict[str, Any], dict[str, str], set[str]]] = [
    (
        SEVERAL,
        {
            "sink_depth": r"rises with depth, from 2\d\..*\u00a0% in the first half of the layers to 5\d.* in the last "
            r"\(by .*\), in a step from layer 3 to layer 4\.$",
            "context": "lower than among 32, at the same N ",
            "retrievers": "^Retrievers are commoner in the first third of the .*",
        },
        set(),
    ),
    (
        {
            "layers": 12,
            "deeper": STEP["deeper"][::-1],
            "shorter": -0.2,
            "focused": 0.2,
            "slope": -1.0,
            "labels": ("RRRROOOO",) * 3 + ("OOOOOOOO",) * 3,
        },
        {
            "sink_depth": "falls with depth, .*, in a step from layer 7 to layer 8",
            "context": "higher than among 32, ",
            "focus": r"2\d.*% of the heads|1\d.*% of the heads",
            "sink_and_recall": "have less Recall",
            "resets": "^Reset heads are commoner in the first half of the .* last half",
        },
        set(),
    ),
    (
        MIXED,
        {"sink_kinds": r"is 4\d.*% in layers of full attention and 7\..*% in layers of local attention \(a "},
        {"sink_depth"},
    ),
    ({**STEP, "layers": 6}, {}, {"sink_depth"}),  # one of 15 places of two low layers among six
    ({**STEP, "deeper": (HIGH, LOW, LOW, HIGH, HIGH, HIGH)}, {}, {"sink_depth"}),  # rises after its first layers
]
"""How models differ, words of the sentences of what there is, and what is not there."""

QUICK = (0, 3)  # A model with facts of several subjects, and one with too few layers; the others are slow


def tell(rows: dict[str, Rows]) -> dict[str, str]:
    """The sentences that are told, in their order."""
    told = sorted((row for row in rows["facts"] if row["place"]), key=lambda row: row["place"])
    assert [row["place"] for row in told] == list(range(1, len(told) + 1))
    return {row["fact"]: row["sentence"] for row in told}


def test_facts_are_about_measures_and_told_once_for_each_subject() -> None:
    assert {fact.measure for fact in FACTS} <= set(MEASURES)
    assert len({fact.name for fact in FACTS}) == len(FACTS)
    rows = key(compute(**SEVERAL)["facts"], "fact")
    told = [row for row in rows.values() if row["place"]]
    assert len({row["subject"] for row in told}) == len(told) >= 5
    assert rows["auc_over_random"]["place"] is None  # Recall is farther from chance
    assert sorted(told, key=lambda row: row["place"]) == sorted(told, key=lambda row: -row["effect"])


@pytest.mark.parametrize(
    ("changed", "words", "silent"),
    [pytest.param(*model, marks=[] if at in QUICK else pytest.mark.slow) for at, model in enumerate(MODELS)],
)
def test_sentences_follow_the_numbers_and_what_is_not_there_is_not_told(
    changed: dict[str, Any], words: dict[str, str], silent: set[str]
) -> None:
    rows = compute(**changed)
    sentences, measures = tell(rows), key(rows["measures"], "measure")
    for fact, said in words.items():
        assert re.search(said, sentences[fact]), sentences[fact]
        (measure,) = (one.measure for one in FACTS if one.name == fact)
        for part in {"half", "third"} & set(said.split()):
            assert f" {part} " in measures[measure]["meaning"]
    assert not silent & set(sentences)


def test_facts_that_random_weights_show_too_are_not_told() -> None:
    alone, twin = compute(**SEVERAL), make_twin(compute(**STEP, focused=0.2, seed=1))
    beside = compute(twin, **SEVERAL)
    assert {"sink_depth", "focus"} <= set(tell(alone))
    assert "sink_depth" not in tell(beside)
    assert "focus" in tell(beside)
    effects = [key(rows["facts"], "fact")["focus"]["effect"] for rows in (alone, beside)]
    assert effects[0] > effects[1] > 0


def test_recall_over_context_is_compared_at_the_same_n(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recall that falls with N is lower on the average over more N, although no N differs."""
    tables = make_tables(shorter=0.0, effects=False)
    counts = tables["selection_counts"]
    own = counts["n"] < np.where(counts["query"] == QUERY, QUERY + 1, QUERY // 2 + 1)
    tables["selection_counts"] = counts = {name: np.asarray(column)[own] for name, column in counts.items()}
    recall = 0.95 - 0.2 * np.log(counts["n"]) + 0.02 * np.random.default_rng(0).standard_normal(own.sum())
    counts["k_in"] = np.round(recall * counts["n"]).astype(int)

    def tell_context() -> str | None:
        tables_of = dict(compute_claims(make_evidence(tables).connection, NOTHING))
        return tell({"facts": tables_of["facts"].to_pylist()}).get("context")

    assert tell_context() is None
    mixed = separation._OTHERS.replace("min(n_keys) AS keys", "max(n_keys) AS keys")
    monkeypatch.setattr(separation, "_OTHERS", mixed)
    assert re.search(r"^Recall among 64 keys is 0\.\d+ .* lower than among 32", str(tell_context()))


def test_without_random_weights_only_associations_within_layers_are_told() -> None:
    rows = compute(None, **SEVERAL)
    assert set(tell(rows)) == {"sink_and_recall"}
    assert {row["effect"] for row in rows["facts"] if row["fact"] != "sink_and_recall"} == {None}


def test_a_change_over_layers_is_not_told_of_shuffled_ones() -> None:
    """Of profiles that differ between layers; an interval at the place of the step alone tells most of them."""
    rng, told, told_before = np.random.default_rng(0), 0, 0
    for trial in range(40):
        profiles = rng.standard_normal(12) + 0.1 * rng.standard_normal((8, 12))
        change = measure_change(profiles, np.ones(12, np.bool_), seed=trial)
        sample = Sample(change.last_half - change.first_half, 12, arranged=change.by_depth)
        told += sample.compare(0.0, above=True).p <= 0.05
        place = int(np.abs(build_shapes(12)[:-1] @ profiles.mean(axis=0)).argmax()) + 1
        heights = profiles[:, place:].mean(axis=1) - profiles[:, :place].mean(axis=1)
        told_before += stats.ttest_1samp(heights, 0).pvalue <= 0.05
    assert told <= 5
    assert told_before > 30


def test_profiles_are_means_by_layer() -> None:
    tables = make_tables(**SEVERAL)
    rows = key(compute(**SEVERAL)["layer_profiles"], "quantity", "layer")
    weights = np.asarray(tables["attention_rows"]["sink_weight"]).reshape(2, 8, 12, 8)[0]  # of the last query
    for layer in range(12):
        row = rows["sink_weight", layer]
        assert row["value"] == pytest.approx(weights[:, layer].mean())
        assert row["value_low"] < row["value"] < row["value_high"]
