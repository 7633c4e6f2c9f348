"""Scores of heads by other tools: what is read, what is refused in a line, and how they go with measures."""

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy.stats import spearmanr

from reports.external import Heads, correlate_scores, read_scores
from reports.head_files import Choice, write
from storage.errors import UserError
from tests.refusals import read_refusal


@pytest.fixture(scope="module")
def heads(small: duckdb.DuckDBPyConnection) -> Heads:
    return Heads.of(small, "small")


def test_what_is_exported_comes_back(small: duckdb.DuckDBPyConnection, heads: Heads, tmp_path: Path) -> None:
    write(small, "small", Choice("retrieval", "effective_keys"), tmp_path / "scores.json")
    found = read_scores(tmp_path / "scores.json", "retrieval", heads)
    rows = small.sql("SELECT layer, head, effective_keys FROM concentration_means ORDER BY ALL").fetchall()
    assert found == {(layer, head): pytest.approx(keys) for layer, head, keys in rows}
    write(small, "small", Choice("duo", "effective_keys", "mean"), tmp_path / "pattern")
    of_pattern = read_scores(tmp_path / "pattern", "duo", heads)
    assert of_pattern == read_scores(tmp_path / "pattern" / "full_attention_heads.tsv", "duo", heads)
    table = np.loadtxt(tmp_path / "pattern" / "full_attention_heads.tsv", delimiter="\t")
    assert of_pattern == {(layer, head): table[layer, head // 2] for layer in range(3) for head in range(4)}


def test_columns_in_any_order_and_heads_left_out(heads: Heads, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("note,score,head,layer\nx,0.5,3,2\ny,-1e3,0,0\n")
    assert read_scores(tmp_path / "s.csv", "csv", heads) == {(2, 3): 0.5, (0, 0): -1000.0}


@pytest.mark.slow
def test_correlations_are_over_the_heads_that_have_both(small: duckdb.DuckDBPyConnection, heads: Heads) -> None:
    rng = np.random.default_rng(1)
    scores = {place: float(rng.normal()) for place in list(heads.kv_head)[1:]}
    found = {row["measure"]: row for row in correlate_scores(small, "small", scores)}
    rows = small.sql("SELECT layer, head, effective_keys FROM concentration_means").fetchall()
    keys = {(layer, head): number for layer, head, number in rows}
    expected = spearmanr([scores[place] for place in scores], [keys[place] for place in scores]).statistic
    assert found["effective_keys"]["correlation_over_all"] == pytest.approx(expected)
    assert found["effective_keys"]["heads"] == 11
    assert found["effective_keys"]["correlation"] != pytest.approx(expected)
    assert 0 < found["effective_keys"]["p"] <= 1
    tested = sorted((row["p"], row["p_holm"]) for row in found.values() if row["p"] is not None)
    steps = [min(1.0, (len(tested) - rank) * p) for rank, (p, _) in enumerate(tested)]
    assert [p_holm for _, p_holm in tested] == pytest.approx(np.maximum.accumulate(steps))
    assert {"recall", "margin", "elbow", "kl_zero"} <= found.keys()


HEADS = "".join(f"{layer},{head},1\n" for layer in range(3) for head in range(4))

WRONG = {
    "no file": ("csv", None, "cannot be read (No such file or directory)"),
    "no format": ("pickle", "", "There is no format 'pickle' of scores; choose from duo, retrieval, csv"),
    "csv without a column": ("csv", "layer,head\n0,0\n", "should have the columns layer, head and score"),
    "csv with words": ("csv", "layer,head,score\n0,zero,1\n", "should have the columns layer, head and score"),
    "csv with a gap": ("csv", "layer,head,score\n0,,1\n", "a layer, head or score is missing"),
    "csv of a head twice": ("csv", "layer,head,score\n0,0,1\n0,0,2\n", "head 0 in layer 0 occurs twice"),
    "csv of another model": ("csv", "layer,head,score\n9,0,1\n", "a score of head 0 in layer 9, which the model"),
    "csv that is no number": ("csv", "layer,head,score\n0,0,inf\n", "head 0 in layer 0 is not a finite number"),
    "csv without rows": ("csv", "layer,head,score\n", "it has no scores"),
    "an empty csv": ("csv", "", "should have the columns"),
    "no json": ("retrieval", "{", "it is not JSON"),
    "a list": ("retrieval", "[]", "it should be an object"),
    "a name": ("retrieval", '{"L0H1": [1]}', "'L0H1' should be a layer and a head"),
    "a number": ("retrieval", '{"0-1": 1}', "'0-1' should have a list of at least one number"),
    "no trials": ("retrieval", '{"0-1": []}', "'0-1' should have a list of at least one number"),
    "words": ("retrieval", '{"0-1": ["high"]}', "'0-1' should have a list of at least one number"),
    "infinity": ("retrieval", '{"0-1": [Infinity]}', "head 1 in layer 0 is not a finite number"),
    "another model": ("retrieval", '{"0-7": [1]}', "a score of head 7 in layer 0, which the model"),
    "deep": ("retrieval", "[" * 10**5, "it is not JSON"),
    "too few layers": ("duo", "0\t1\n0\t1\n", "it has 2 lines of up to 2 numbers, separated by tabs"),
    "query heads": ("duo", "0\t1\t0\t1\n" * 3, "it has 3 lines of up to 4 numbers"),
    "a header": ("duo", "a\tb\n" * 3, "a pattern has only numbers, separated by tabs"),
    "commas": ("duo", "0,1\n" * 3, "it has 3 lines of up to 1 numbers, separated by tabs"),
    "a number of 400 digits": ("retrieval", f'{{"0-1": [1{"0" * 400}]}}', "head 1 in layer 0 is not a finite number"),
    "a sum that is too large": ("retrieval", '{"0-1": [1.7e308, 1.7e308]}', "head 1 in layer 0 is not a finite"),
    "both infinities": ("retrieval", '{"0-1": [Infinity, -Infinity]}', "head 1 in layer 0 is not a finite number"),
    "a head twice": ("retrieval", '{"0-1": [1], "0-1": [2]}', "head 1 in layer 0 occurs twice"),
    "a head twice in two forms": ("retrieval", '{"0-1": [1], "00-1": [2]}', "head 1 in layer 0 occurs twice"),
    "nested": ("retrieval", '{"0-1": {"a": 1}}', "'0-1' should have a list of at least one number"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_read_is_one_line(what: str, heads: Heads, tmp_path: Path) -> None:
    form, content, said = WRONG[what]
    if content is not None:
        (tmp_path / "scores").write_text(content)
    assert said in read_refusal(read_scores, tmp_path / "scores", form, heads)


def test_bytes_that_are_no_text(heads: Heads, tmp_path: Path) -> None:
    (tmp_path / "scores").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="it is not text in UTF-8"):
        read_scores(tmp_path / "scores", "csv", heads)


def test_a_study_that_has_not_small(small: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(UserError, match="holds nothing of the study 'other'"):
        Heads.of(small, "other")


def test_scores_of_one_number_are_read_as_numbers(heads: Heads, tmp_path: Path) -> None:
    (tmp_path / "scores").write_text(json.dumps({"0-1": [1, 0, 0.5], "1-2": [True]}))
    with pytest.raises(UserError, match="'1-2' should have a list of at least one number"):
        read_scores(tmp_path / "scores", "retrieval", heads)
    (tmp_path / "scores").write_text(json.dumps({"0-1": [1, 0, 0.5]}))
    assert read_scores(tmp_path / "scores", "retrieval", heads) == {(0, 1): 0.5}
