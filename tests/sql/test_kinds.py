"""The rules of the kinds of heads: each condition alone, the heads that earlier rules misread, and any signature."""

from collections.abc import Iterator, Mapping, Sequence
from math import isclose

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import sql
from sql.thresholds import KINDS, SIGNATURE, THRESHOLDS
from tests.sql.hand_made import Row, break_statement
from tests.sql.kinds_oracle import BROAD, DEFAULTS, MIXER, RETRIEVER, RULES, SINK_BIASED, classified, held


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


@pytest.mark.parametrize(
    ("head", "kind", "missed"),
    [
        (BROAD | {"effective_contributors": 1.1, "cos_last_level": 0.1}, "Reset", "broad_least"),
        (MIXER | {"cos_sink_max": 0.0}, "Mixer", "sink_seen"),
        (RETRIEVER | {"cos_last_level": 0.8, "cos_last_p05": 0.3}, "Retriever", "last_high"),
    ],
    ids=["a previous-token head", "a head that never faced the sink", "near to the last by the ends of a line"],
)
def test_what_an_earlier_rule_took_for_a_kind_is_none(
    empty: duckdb.DuckDBPyConnection, head: Row, kind: str, missed: str
) -> None:
    (row,) = labelled(empty, [head])
    assert missed in unmet(row, kind, "broad")
    assert (row["label"], row["single_key"]) == ("Other", missed == "broad_least")


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
