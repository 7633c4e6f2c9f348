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
SLOPE = {"deeper": (0.2, 0.6, 1.0, 1.4, 1.8, 2.2)}
BETWEEN = {"deeper": (0.1, 0.1, 0.54, 1.36, 1.8, 1.8)}
"""As much of a step as of a slope."""
FLAT_ENDS = {"deeper": (0.1, 0.1, 0.1, 0.1, 0.1, 0.95, 1.8, 1.8, 1.8, 1.8, 1.8), "layers": 11}
"""As well a step before the sixth layer as after it, and no slope."""


def tell(rows: dict[str, Rows]) -> dict[str, str]:
    """The sentences that are told, in their order."""
    told = sorted((row for row in rows["facts"] if row["place"]), key=lambda row: row["place"])
    assert [row["place"] for row in told] == list(range(1, len(told) + 1))
    return {row["fact"]: row["sentence"] for row in told}


def test_facts_are_about_measures_and_told_once_for_each_subject() -> None:
    assert {fact.measure for fact in FACTS} <= set(MEASURES)
    assert len({fact.name for fact in FACTS}) == len(FACTS)
    rows = key(compute(**STEP, shorter=0.2)["facts"], "fact")
    told = [row for row in rows.values() if row["place"]]
    assert len({row["subject"] for row in told}) == len(told) >= 5
    assert rows["auc_over_random"]["place"] is None  # Recall is farther from chance
    assert sorted(told, key=lambda row: row["place"]) == sorted(told, key=lambda row: -row["effect"])


@pytest.mark.parametrize(
    ("changed", "fact", "words"),
    [
        (
            STEP,
            "sink_step",
            r"rises with depth in a step, from 3\.\d*\u00a0% in layers 0 to 1 to 5\d.*\u00a0% in layers 2 to 5 ",
        ),
        (SLOPE, "sink_step", r"rises with depth by degrees, .* points, .*\)\.$"),
        (BETWEEN, "sink_step", "rises with depth, from .*; whether in a step or by degrees is undecided"),
        (FLAT_ENDS, "sink_step", "rises with depth, from .*; the place is undecided: .*% of the sequences"),
        ({"deeper": STEP["deeper"][::-1]}, "sink_step", "falls with depth in a step, .* in layers 0 to 3 "),
        ({"focused": 0.2}, "focus", r"2\d.*% of the heads|1\d.*% of the heads"),
        ({"shorter": 0.2}, "context", "lower than among 32 "),
        ({"shorter": -0.2}, "context", "higher than among 32 "),
        ({}, "recall_over_random", "above that of as many keys at random"),
        ({"over_chance": {"recall": -0.3, "specificity": 0.1, "auc": 0.1}}, "recall_over_random", "below that of"),
        ({}, "sink_and_recall", "have more Recall"),
        ({"slope": -1.0}, "sink_and_recall", "have less Recall"),
    ],
)
def test_sentences_follow_the_numbers(changed: dict[str, Any], fact: str, words: str) -> None:
    sentence = tell(compute(**changed))[fact]
    assert re.search(words, sentence), sentence


@pytest.mark.parametrize(
    ("labels", "fact", "words"),
    [
        (("TTTTOOOO",) * 2 + ("OOOOOOOO",) * 4, "retrievers", "Retrievers are commoner in the first third of the .*"),
        (
            ("RRRROOOO",) * 3 + ("OOOOOOOO",) * 3,
            "resets",
            "Reset heads are commoner in the first half of the .* last half",
        ),
        (
            ("OOOOOOOO",) * 4 + ("MMMMOOOO",) * 2,
            "mixers",
            "Mixers are commoner in the last third than in the first third",
        ),
    ],
)
def test_parts_of_the_depth_are_those_of_the_measure(labels: tuple[str, ...], fact: str, words: str) -> None:
    rows = compute(labels=labels)
    assert re.match(words, tell(rows)[fact])
    (measure,) = (one.measure for one in FACTS if one.name == fact)
    (part,) = {"half", "third"} & set(words.split())
    assert f" {part} " in key(rows["measures"], "measure")[measure]["meaning"]


@pytest.mark.parametrize(
    ("changed", "silent"),
    [
        ({}, "sink_step"),
        ({"shorter": 0.0}, "context"),
        ({}, "context"),
        ({"over_chance": None}, "recall_over_random"),
        ({"slope": 0.0}, "sink_and_recall"),
        ({"layers": 3}, "sink_step"),
        ({"sequences": 3, **STEP}, "sink_step"),
        ({"labels": ["TRMOTRMO"]}, "mixers"),
    ],
)
def test_what_is_not_there_is_not_told(changed: dict[str, Any], silent: str) -> None:
    assert silent not in tell(compute(**changed))


def test_facts_that_random_weights_show_too_are_not_told() -> None:
    alone, twin = compute(**STEP), make_twin(compute(**STEP, focused=0.2, seed=1))
    beside = compute(twin, **STEP)
    assert {"sink_step", "focus"} <= set(tell(alone))
    assert "sink_step" not in tell(beside)
    assert "focus" in tell(beside)
    effects = [key(rows["facts"], "fact")["focus"]["effect"] for rows in (alone, beside)]
    assert effects[0] > effects[1] > 0


def test_profiles_are_means_by_layer() -> None:
    tables = make_tables(**STEP)
    rows = key(compute(**STEP)["layer_profiles"], "quantity", "layer")
    weights = np.asarray(tables["attention_rows"]["sink_weight"]).reshape(8, 6, 8)
    for layer in range(6):
        row = rows["sink_weight", layer]
        assert row["value"] == pytest.approx(weights[:, layer].mean())
        assert row["value_low"] < row["value"] < row["value_high"]
        assert row["is_after_step"] is (layer >= 2)
