"""Facts of made-up models: told where they are there, in the order of what is certain, and otherwise not."""

import re
from typing import Any

import numpy as np
import pytest

from dagster_project.analysis.claims.facts import FACTS
from dagster_project.analysis.claims.judging import MEASURES
from tests.dagster_project.claims.judged import Rows, compute, key, make_twin
from tests.dagster_project.claims.made_up import make_tables

STEP = {"deeper": (0.1, 0.1, 1.8, 1.8, 1.8, 1.8)}
SEVERAL = {**STEP, "shorter": 0.2, "labels": ("TTTTOOOO",) * 2 + ("OOOOOOOO",) * 4}
"""A model with facts of several subjects."""

MODELS: list[tuple[dict[str, Any], dict[str, str], set[str]]] = [
    (
        SEVERAL,
        {
            "sink_step": r"rises .* in a step, from 3\.\d*\u00a0% in layers 0 to 1 to 5\d.*\u00a0% in layers 2 to 5 ",
            "context": "lower than among 32 ",
            "retrievers": "^Retrievers are commoner in the first third of the .*",
        },
        set(),
    ),
    (
        {
            "deeper": STEP["deeper"][::-1],
            "shorter": -0.2,
            "focused": 0.2,
            "slope": -1.0,
            "labels": ("RRRROOOO",) * 3 + ("OOOOOOOO",) * 3,
        },
        {
            "sink_step": "falls with depth in a step, .* in layers 0 to 3 ",
            "context": "higher than among 32 ",
            "focus": r"2\d.*% of the heads|1\d.*% of the heads",
            "sink_and_recall": "have less Recall",
            "resets": "^Reset heads are commoner in the first half of the .* last half",
        },
        set(),
    ),
    (
        {
            "deeper": (0.2, 0.6, 1.0, 1.4, 1.8, 2.2),
            "shorter": 0.0,
            "over_chance": {"recall": -0.3, "specificity": 0.1, "auc": 0.1},
            "labels": ("OOOOOOOO",) * 4 + ("MMMMOOOO",) * 2,
        },
        {
            "sink_step": r"rises with depth by degrees, .* points, .*\)\.$",
            "recall_over_random": "below that of",
            "mixers": "^Mixers are commoner in the last third than in the first third",
        },
        {"context"},
    ),
    (  # as much of a step as of a slope
        {
            "deeper": (0.1, 0.1, 0.54, 1.36, 1.8, 1.8),
            "over_chance": None,
            "slope": 0.0,
            "labels": ["TRMOTRMO"],
        },
        {"sink_step": "rises with depth, from .*; whether in a step or by degrees is undecided"},
        {"recall_over_random", "sink_and_recall", "mixers"},
    ),
    (  # as well a step before the sixth layer as after it, and no slope
        {"deeper": (0.1, 0.1, 0.1, 0.1, 0.1, 0.95, 1.8, 1.8, 1.8, 1.8, 1.8), "layers": 11},
        {"sink_step": "rises with depth, .*; the place is undecided: in 2 of 8 sequences the largest change is there"},
        set(),
    ),
    (
        {},
        {"recall_over_random": "above that of as many keys at random", "sink_and_recall": "have more Recall"},
        {"sink_step", "context"},
    ),
    ({"layers": 3}, {}, {"sink_step"}),
    ({"sequences": 3, **STEP}, {}, {"sink_step"}),
]
"""How models differ, words of the sentences of what there is, and what is not there."""


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


@pytest.mark.parametrize(("changed", "words", "silent"), MODELS)
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
    assert {"sink_step", "focus"} <= set(tell(alone))
    assert "sink_step" not in tell(beside)
    assert "focus" in tell(beside)
    effects = [key(rows["facts"], "fact")["focus"]["effect"] for rows in (alone, beside)]
    assert effects[0] > effects[1] > 0


def test_profiles_are_means_by_layer() -> None:
    tables = make_tables(**SEVERAL)
    rows = key(compute(**SEVERAL)["layer_profiles"], "quantity", "layer")
    weights = np.asarray(tables["attention_rows"]["sink_weight"]).reshape(2, 8, 6, 8)[0]  # of the last query
    for layer in range(6):
        row = rows["sink_weight", layer]
        assert row["value"] == pytest.approx(weights[:, layer].mean())
        assert row["value_low"] < row["value"] < row["value_high"]
        assert row["is_after_step"] is (layer >= 2)
