"""Heads that no assumption fits, from tensors to the report: a status and NULL, never a crash or a silent number."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.warehouse.connection import connect
from storage.zarr.arrays import build_tensor_specs
from tests.dagster_project import making
from tests.dagster_project.drawn_study import FIRST, NAME, QUERIES, STUDY, several, write_tensors

Arrays = dict[str, np.ndarray]


def put_on_one(arrays: Arrays) -> None:
    """All weight on the first key that each query sees."""
    arrays["attention"][:] = 0
    np.put_along_axis(arrays["attention"], FIRST[:, :, None, None].astype(int), 1, axis=-1)


def make_alike(arrays: Arrays) -> None:
    arrays["values"][:] = 1
    seen = arrays["attention"] > 0
    arrays["attention"] = (seen / seen.sum(axis=-1, keepdims=True)).astype(np.float32)


def enlarge(arrays: Arrays) -> None:
    """As large as extraction lets pass, for six components."""
    arrays["values"] = np.float32(6e37) * np.sign(arrays["values"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "sequences"),
    [
        (put_on_one, 3),
        (make_alike, 1),
        pytest.param(enlarge, 3, marks=pytest.mark.long),
    ],
)
def test_a_degenerate_model_has_a_whole_page(tmp_path: Path, change: Any, sequences: int) -> None:
    drawn = several(sequences)
    for arrays in drawn:
        change(arrays)
    home, ids = Home(tmp_path), {"model": {"id": "embedded"}, "corpus": {"id": "embedded"}, "dtype": "float32"}
    corpus = {"documents_read": 1, "documents_skipped": 0}
    specs = build_tensor_specs(values="float32", computed="float32", sink_measure=True, probe=True)
    write_tensors(home, drawn, specs, settings=ids, inputs={"model": {"sha256": "0"}, "corpus": corpus})
    settings = {"model": "embedded", "corpus": "embedded", "sequences": sequences}
    making.finish(home, NAME, Study.model_validate(STUDY.model_dump() | settings))
    page = home.report(NAME).read_text(encoding="utf-8")
    text = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert page.rstrip().endswith("</html>")
    assert not re.findall(r"\b(?:nan|None|inf|NaN|Infinity)\b", text)
    with closing(connect(home.warehouse)) as connection:
        found = connection.execute("SELECT DISTINCT query, status FROM assumption_weights ORDER BY ALL").fetchall()
    assert {query for query, _ in found} == {*QUERIES}
    assert change is not put_on_one or {status for _, status in found} == {"no_weight"}
