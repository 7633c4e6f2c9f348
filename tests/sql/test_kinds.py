"""The rules of the kinds of heads: each condition alone, the heads that earlier rules misread, and any signature."""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sql
from geometry import concentration, output_parts, selection_profile
from geometry.grids import quantile_over_ln_n
from geometry.quantities import ROLES
from geometry.selection.metrics import follow_cosines
from sql.thresholds import KINDS, SIGNATURE, THRESHOLDS
from tests.sql.hand_made import Row, break_statement, database, rows_of
from tests.sql.kinds_oracle import DEFAULTS, RULES, classified, held

RETRIEVER = {
    "n_keys": 100.0,
    "norm_y_0": 0.3,
    "norm_y_last": 1.0,
    "norm_rest": 0.4,
    "change_without_sink": 0.1,
    "change_without_last": 0.8,
    "cos_sink_max": 0.4,
    "cos_sink_level": 0.2,
    "cos_sink_change": 0.0,
    "cos_last_level": 0.9,
    "cos_last_change": 0.05,
    "cos_last_p05": 0.8,
    "effective_contributors": 3.0,
    "top_is_other": 0.0,
}
MIXER = RETRIEVER | {
    "norm_y_0": 0.5,
    "norm_y_last": 0.7,
    "norm_rest": 1.0,
    "cos_sink_max": 0.9,
    "cos_sink_change": -0.5,
    "cos_last_level": 0.5,
    "cos_last_change": 0.5,
    "cos_last_p05": 0.1,
}
SINK_BIASED = RETRIEVER | {
    "norm_y_0": 1.0,
    "norm_y_last": 0.3,
    "norm_rest": 0.8,
    "change_without_sink": 0.6,
    "change_without_last": 0.2,
    "cos_sink_max": 1.0,
    "cos_last_level": 0.1,
    "cos_last_p05": -0.1,
    "effective_contributors": 2.5,
}
BROAD = SINK_BIASED | {
    "norm_y_0": 0.2,
    "norm_rest": 1.0,
    "change_without_sink": 0.1,
    "effective_contributors": 30.0,
    "top_is_other": 1.0,
}


def rules() -> duckdb.DuckDBPyConnection:
    """A database with nothing but the rules."""
    connection = duckdb.connect()
    for name in ("taxonomy_thresholds", "label_heads"):
        connection.execute(sql.read_statement("macros", name).text)
    return connection


@pytest.fixture(scope="module")
def empty() -> Iterator[duckdb.DuckDBPyConnection]:
    """The rules, for tests that leave them alone."""
    with rules() as connection:
        yield connection


def labelled(connection: duckdb.DuckDBPyConnection, heads: Sequence[Row], **thresholds: float) -> list[Row]:
    """What ``label_heads`` says of signatures, in their order."""
    schema = pa.schema([("head", pa.int64()), *((name, pa.float64()) for name in SIGNATURE)])
    rows = [{"head": head} | dict(row) for head, row in enumerate(heads)]
    connection.register("heads_given", pa.Table.from_pylist(rows, schema))
    arguments = ", ".join(f"{name} := {value!r}" for name, value in thresholds.items())
    found = connection.sql(
        f"WITH thresholds AS (FROM taxonomy_thresholds({arguments})), heads AS (FROM heads_given) "
        "FROM label_heads(heads, thresholds) ORDER BY head"
    )
    table: list[Row] = found.to_arrow_table().to_pylist()
    return table


def unmet(row: Row, kind: str, way: str | None) -> set[str]:
    """The conditions of one way to meet a rule that a head misses."""
    found = (one for one in row["conditions"] if one["kind"] == kind and one["way"] in {None, way})
    return {one["condition"] for one in found if not one["met"]}


def test_declarations_are_those_of_the_plain_reading() -> None:
    assert {threshold.name: threshold.default for threshold in THRESHOLDS} == DEFAULTS
    assert all(threshold.meaning and threshold.reason for threshold in THRESHOLDS)
    for kind in KINDS:
        ways: dict[str | None, tuple[str, ...]] = {}
        for condition in kind.conditions:
            ways[condition.way] = (*ways.get(condition.way, ()), condition.name)
        assert ways == RULES[kind.label]
    assert [kind.label for kind in KINDS] == list(RULES)


def test_a_window_that_hides_the_sink_leaves_retrievers_and_broad_heads(empty: duckdb.DuckDBPyConnection) -> None:
    hidden = dict.fromkeys(
        ("norm_y_0", "change_without_sink", "cos_sink_max", "cos_sink_level", "cos_sink_change"), None
    )
    rows = labelled(empty, [kind | hidden for kind in (RETRIEVER, MIXER, SINK_BIASED, BROAD)])
    assert [row["label"] for row in rows] == ["Retriever", "Other", "Other", "Reset"]
    assert all(row["mixer_score"] is None and row["sink_share"] is None for row in rows)
    assert unmet(rows[1], "Mixer", None) == {*RULES["Mixer"][None]} - {"last_rises"}
    assert unmet(rows[2], "Reset", "sink-biased") == {*RULES["Reset"]["sink-biased"]}


def head(weights: np.ndarray, values: np.ndarray) -> dict[str, list[Row]]:
    """The rows of one head with one query, as the pipeline measures it."""
    n, where = len(weights), {"sequence": 0, "query": len(weights) - 1, "layer": 0, "head": 0}
    profile, spread = selection_profile(weights, values), concentration(weights, values)
    parts = {name: float(array) for name, array in vars(output_parts(weights, values)).items()}
    tops = {
        "top_position": int(spread.top_key),
        "top_role": ROLES[spread.top_role],
        "top_contributor_position": int(spread.top_contributor),
        "top_contributor_role": ROLES[spread.top_contributor_role],
    }
    numbers = {name: float(getattr(spread, name)) for name in _SPREAD}
    attended = {"sink_attended": True, "weight_sum": 1.0, "learned_sink": 0.0}
    p05 = {"cos_last_p05": float(quantile_over_ln_n(profile.cos_last, 0.05))}
    course = follow_cosines(profile.cos_sink, profile.cos_last, profile.a_0)
    return {
        "attention_rows": [where | {"n_keys": n} | attended | parts | p05 | numbers | tops],
        "head_levels": [where | {name: _known(number) for name, number in course.items()}],
    }


_SPREAD = (
    *("entropy_keys", "effective_keys", "top_weight", "n_50", "n_90", "n_99", "largest_deviation"),
    *("entropy_contributors", "effective_contributors", "top_contribution"),
    *("contributors_50", "contributors_90", "contributors_99"),
)


def _known(number: np.generic) -> float | None:
    value = number.item()
    return None if isinstance(value, float) and np.isnan(value) else value


def verdict(weights: np.ndarray, values: np.ndarray) -> tuple[Row, dict[str, bool]]:
    """The row of ``head_taxonomy`` of one head, and which conditions it meets."""
    with database(**head(weights, values)) as connection:
        (row,) = rows_of(connection, "head_taxonomy")
        met = {one["condition"]: one["met_share"] == 1 for one in rows_of(connection, "head_conditions")}
    return row, met


def test_a_previous_token_head_is_no_reset_head() -> None:
    """It gives 0.969 of its weight to one position, which is neither sink nor last."""
    rng = np.random.default_rng(0)
    weights = np.full(64, (1 - 0.969) / 63)
    weights[-2] = 0.969
    row, met = verdict(weights, rng.standard_normal((64, 96)))
    assert met["last_weak"], "an earlier rule took this and a large rest for a Reset head"
    assert row["rest_share"] > 0.8
    assert (row["label"], row["single_key"]) == ("Other", True)
    assert row["effective_contributors"] < 2


def test_a_head_that_never_faced_the_sink_is_no_mixer() -> None:
    """Its cosine with the sink falls and that with the last token rises, but the first is below 0 throughout."""
    n, angle = 64, 0.3 + 0.4 * np.log(np.arange(1, 65))
    angle[0], angle[-1] = -1.37, np.pi / 2
    values = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    values[0] *= 0.5
    weights = np.linspace(1, 0.9, n)
    weights[[0, -1]] = 0.91, 0.93
    row, met = verdict(weights / weights.sum(), values)
    assert row["cos_sink_max"] <= 0
    assert all(met[name] for name in RULES["Mixer"][None] if name != "sink_seen"), met
    assert row["label"] != "Mixer"


def test_a_retriever_by_the_ends_of_a_fitted_line_is_none() -> None:
    """The line through its cosine lies above the threshold at both ends; at N = 3, 6 % of ln N, the cosine does not."""
    values, weights = np.tile([0.0, 1.0], (100, 1)), np.full(100, 1e-4)
    weights[[-1, 1, 2, 3, 4]] = 0.3, 0.29, 0.28, 0.275, 0.27
    values[1:3], values[3:5] = [1, 0], [-1, 0]
    row, met = verdict(weights / weights.sum(), values)
    assert row["cos_last_level"] - abs(row["cos_last_change"]) / 2 >= DEFAULTS["last_high"], "the ends of the line"
    assert row["cos_last_p05"] < DEFAULTS["last_high"]
    assert (row["label"], row["nearest"], met["last_leads"], met["last_high"]) == ("Other", "Retriever", True, False)


norms = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 2.0]) | st.floats(0, 3)
cosines = st.sampled_from([-1.0, -0.5, 0.0, 0.1, 0.3, 0.5, 0.8, 1.0]) | st.floats(-1, 1)
changes = st.sampled_from([-0.5, -0.1, 0.0, 0.1, 0.5]) | st.floats(-2, 2)
KNOWN = {
    **dict.fromkeys(("norm_y_0", "norm_y_last", "norm_rest", "change_without_sink", "change_without_last"), norms),
    **dict.fromkeys(("cos_sink_max", "cos_sink_level", "cos_last_level", "cos_last_p05"), cosines),
    **dict.fromkeys(("cos_sink_change", "cos_last_change"), changes),
    "n_keys": st.sampled_from([1.0, 2.0, 40.0, 50.0, 100.0]),
    "effective_contributors": st.sampled_from([1.0, 2.0, 5.0, 10.0]) | st.floats(1, 100),
    "top_is_other": st.sampled_from([0.0, 0.5, 1.0]),
}
ALWAYS = {"n_keys", "norm_y_last", "norm_rest", "change_without_last"}
signatures = st.fixed_dictionaries(
    {name: known if name in ALWAYS else known | st.none() for name, known in KNOWN.items()}
).map(lambda row: row | {"top_is_other": None if row["effective_contributors"] is None else row["top_is_other"] or 0.0})
moved = st.dictionaries(st.sampled_from(sorted(DEFAULTS)), st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=3)


def agrees(found: object, wanted: object) -> bool:
    """Equal, numbers to rounding."""
    if isinstance(found, float) and isinstance(wanted, float):
        return isclose(found, wanted, rel_tol=1e-12, abs_tol=1e-15)
    return found == wanted


def differences(connection: duckdb.DuckDBPyConnection, heads: Sequence[Row], thresholds: Mapping[str, float]) -> int:
    """How many heads SQL tells apart otherwise than the plain reading does."""
    wrong = 0
    stated = DEFAULTS | thresholds
    for given_one, row in zip(heads, labelled(connection, heads, **thresholds), strict=True):
        wanted = classified(given_one, stated)
        same = all(agrees(row[name], value) for name, value in wanted.items())
        conditions = {one["condition"]: one for one in row["conditions"]}
        for name, one in held(given_one, stated).items():
            found = conditions.pop(name)
            same &= found["met"] == one.met and found["direction"] == one.direction
            same &= agrees(found["value"], one.value)
        wrong += not (same and not conditions)
    return wrong


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(heads=st.lists(signatures, min_size=1, max_size=25), thresholds=moved)
def test_any_signature_is_labelled_as_a_plain_reading_does(
    empty: duckdb.DuckDBPyConnection, heads: list[Row], thresholds: dict[str, float]
) -> None:
    assert differences(empty, heads, thresholds) == 0


def random_heads(number: int) -> list[Row]:
    """Signatures near to the thresholds, kinds of all sorts among them."""
    rng = np.random.default_rng(1)
    rows = []
    for index in range(number):
        base = (RETRIEVER, MIXER, SINK_BIASED, BROAD)[index % 4]
        row: Row = {name: float(value + rng.normal(0, 0.3 * abs(value) + 0.03)) for name, value in base.items()}
        row |= {name: abs(row[name]) for name in row if "norm" in name or "change_without" in name}
        row["effective_contributors"] = max(1.0, row["effective_contributors"])
        row["n_keys"] = 1.0 if index % 41 == 0 else 20.0 if index % 3 else base["n_keys"]
        row["top_is_other"] = float(rng.choice([0, 0.5, 1]))
        if index % 5 == 0:
            row["effective_contributors"] = float(rng.uniform(1, 2.5))
        hidden = ("norm_y_0", "change_without_sink", "cos_sink_max", "cos_sink_level", "cos_sink_change")
        row |= dict.fromkeys(hidden) if index % 13 == 0 else {}
        row |= dict.fromkeys(("cos_last_level", "cos_last_change", "cos_last_p05")) if index % 17 == 0 else {}
        rows.append(row)
    return [*rows, *TIES]


TIES = (
    MIXER | {"norm_y_0": 0.25, "norm_y_last": 1.0, "norm_rest": 1.0, "cos_last_p05": 0.9},
    SINK_BIASED | {"change_without_last": 0.6},
    RETRIEVER | {"cos_last_p05": 0.5},
    BROAD | {"effective_contributors": 10.0},
    BROAD | {"effective_contributors": 1.5, "top_is_other": 0.5},
)

BREAKS = [
    ("stated.last_leads * greatest(sink_share, rest_share)", "stated.last_leads * sink_share"),
    ("cos_last_p05 END AS last_high", "cos_last_level END AS last_high"),
    ("least(sink_share, rest_share) AS above", "rest_share AS above"),
    ("greatest(sink_share, rest_share) AS below", "rest_share AS below"),
    ("cos_sink_max END AS sink_seen", "cos_sink_level END AS sink_seen"),
    ("-cos_sink_change END", "cos_sink_change END"),
    ("stated.last_rises AS", "stated.sink_seen AS"),
    ("cos_last_level END AS last_weak", "cos_last_p05 END AS last_weak"),
    ("stated.sink_comparable * greatest(last_share, rest_share)", "stated.sink_comparable * last_share"),
    ("sink_matters_value > sink_matters_limit", "sink_matters_value >= sink_matters_limit"),
    ("change_without_last / total_norm AS", "change_without_sink / total_norm AS"),
    ("stated.broad_share * n_keys", "stated.broad_share * 10"),
    ("greatest(broad_least_value, broad_least_limit)", "1"),
    ("CASE WHEN n_keys > 1 THEN", "CASE WHEN n_keys > 0 THEN"),
    ("coalesce(norm_y_0, 0)", "coalesce(norm_y_0, 1)"),
    ("CASE WHEN sink_share IS NOT NULL THEN last_share END", "last_share"),
    ("(sink_comparable_met AND sink_matters_met) OR", "(sink_comparable_met) OR"),
    ("(broad_least_met AND broad_share_met)", "(broad_least_met OR broad_share_met)"),
    ("greatest(least(sink_comparable_slack", "least(least(sink_comparable_slack"),
    ("CASE won WHEN retriever_won", "CASE won WHEN mixer_won THEN 'Mixer' WHEN retriever_won"),
    ("won - greatest(ranked[2], 0)", "won - ranked[2]"),
    ("-nullif(ranked[1], '-infinity')", "nullif(ranked[1], '-infinity')"),
    ("effective_contributors < 2 AND", "effective_contributors < 5 AND"),
    ("top_is_other > 0.5", "top_is_other >= 0.5"),
    ("won IS NULL AND coalesce", "coalesce"),
    ("WHEN mixer THEN 'Mixer'", "WHEN mixer THEN 'Reset'"),
]
"""Wrong readings of the rules in the statement ``label_heads``."""


def test_a_plain_reading_agrees_on_heads_of_every_kind(empty: duckdb.DuckDBPyConnection) -> None:
    heads = random_heads(400)
    assert differences(empty, heads, {}) == 0
    found = [classified(one, DEFAULTS) for one in heads]
    assert {row["label"] for row in found} == {*RULES, "Other"}
    assert {row["nearest"] for row in found if row["label"] == "Other"} == {*RULES, None}
    assert any(row["single_key"] for row in found)


@pytest.mark.one_case
@pytest.mark.parametrize(("old", "new"), BREAKS)
def test_a_wrong_rule_would_be_noticed(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    break_statement(monkeypatch, "label_heads", old, new)
    with rules() as connection:
        assert differences(connection, random_heads(400), {}) > 0
