"""The command ``inspect``: heads of a model on a text, without a study and without a data root."""

import io
import json
import re
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from dagster_project.command.inspection import COLUMNS, LOOKED_AT, read_lines
from dagster_project.command.options import Ranking
from extract.models import loading as models
from extract.settings import TEXT_BYTES
from geometry.quantities import PATTERNS
from tests.dagster_project.driver import attention_geometry
from tests.extract.tiny import text
from tests.memory import trace
from tests.refusals import read_refusal

TEXT = "A list can be used as a stack, and a list can be used as a queue."


def inspect(cwd: Path, *arguments: object, model: object = "embedded", stdin: str = "") -> list[dict[str, object]]:
    """The documents that ``inspect --json`` prints; nothing is written."""
    done = attention_geometry("inspect", "--model", model, "--json", *arguments, cwd=cwd, stdin=stdin)
    assert done.code == 0, done.errors
    assert list(cwd.iterdir()) == []
    return [json.loads(line) for line in done.text.splitlines()]


def test_heads_are_ranked_by_what_is_asked(tmp_path: Path) -> None:
    """At the last token, and by what they look at everywhere."""
    twice = f"{TEXT} {TEXT}"
    for by, column in (("sink", "sink_weight"), ("induction", "induction")):
        (found,) = inspect(tmp_path, "--by", by, "--top", 48, twice)
        values = [head[column] for head in found["heads"]]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) > 1
        assert (found["by"], found["text"], found["n"], len(values)) == (by, twice, 4, 48)
    measures = {COLUMNS.get(name, name) for name in get_args(Ranking)} - {*LOOKED_AT}
    assert measures <= found["heads"][0].keys()
    assert {*LOOKED_AT} <= {*PATTERNS}
    assert values[0] > 3 * found["heads"][0]["chance"], "a head of the model induces"


def test_every_token_is_a_query_of_a_head(inputs: Path, tmp_path: Path) -> None:
    """Its numbers at the last token are those of the ranking there, and the table has a row for each token."""
    given = text(12), "--every", "--head", "1.2"
    (found,) = inspect(tmp_path, *given, model=inputs / "llama")
    (ranked,) = inspect(tmp_path, text(12), "--top", 48, model=inputs / "llama")
    assert [row["position"] for row in found["queries"]] == list(range(1, found["tokens"]))
    last, at_end = found["queries"][-1], next(h for h in ranked["heads"] if (h["layer"], h["head"]) == (1, 2))
    for name in ("sink_weight", "effective_keys", "n_90", "top_weight"):
        assert last[name] == pytest.approx(at_end[name], rel=1e-4)
    assert len({row["recall_level"] for row in found["queries"]}) > 2
    shown = attention_geometry("inspect", *given, "--model", inputs / "llama", cwd=tmp_path).text
    assert shown.count("\n") > found["tokens"]


def test_texts_of_standard_input_have_one_model(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, load = [], models.load
    monkeypatch.setattr(models, "load", lambda known: loads.append(known) or load(known))
    texts = [text(12).strip(), text(9).strip()]
    found = inspect(tmp_path, stdin="\n\n".join(texts), model=inputs / "llama")
    assert [line["text"] for line in found] == texts
    assert len(loads) == 1


def test_no_text_is_told_and_a_byte_order_mark_is_none(inputs: Path, tmp_path: Path) -> None:
    model = inputs / "llama"
    for stdin in ("", "\n  \n"):
        done = attention_geometry("inspect", "--model", model, cwd=tmp_path, stdin=stdin)
        assert done.code == 1
        assert "inspect: there was no text on standard input" in done.errors
    marked, plain = (inspect(tmp_path, stdin=f"{mark}{text(12)}\n", model=model) for mark in ("\ufeff", ""))
    assert marked == plain


class Endless(io.RawIOBase):
    """A file of some bytes, and then of one byte without end."""

    def __init__(self, begin: bytes, byte: bytes) -> None:
        self.begin, self.byte, self.read_bytes = begin, byte, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        taken, self.begin = self.begin[: len(buffer)], self.begin[len(buffer) :]
        buffer[:] = taken + self.byte * (len(buffer) - len(taken))
        self.read_bytes += len(buffer)
        return len(buffer)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless(b"first\n\nsecond\n", b"\xff")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    lines = read_lines()
    assert [next(lines), next(lines)] == ["first", "second"]
    said, most = trace(partial(read_refusal, next, lines))
    assert said == "Line 4 of standard input has more than 1,048,576 bytes; give shorter texts"
    assert endless.read_bytes < 2 * TEXT_BYTES
    assert most < 16 * TEXT_BYTES


def test_a_text_that_cannot_be_measured_does_not_end_the_others(tmp_path: Path) -> None:
    done = attention_geometry("inspect", "--query", 8, "--json", cwd=tmp_path, stdin=f"a\n{TEXT}\n")
    assert done.code == 1
    assert "query must be from 1 to 1" in done.errors
    assert [json.loads(line)["text"] for line in done.text.splitlines()] == [TEXT]


def test_the_table_and_the_text_are_for_people(tmp_path: Path) -> None:
    """And control codes of a text reach no terminal."""
    text = f"a \x1b[31mred\x1b[0m b. {TEXT}"
    ranked = attention_geometry("inspect", "--top", 3, text, cwd=tmp_path).text
    assert re.search(r"the 3 of 48 heads of largest recall .*, query \d+ '\.', N = 4", ranked)
    assert len(re.findall(r"^ +\d\.\d ", ranked, re.MULTILINE)) == 3
    assert "'queue' 0." in ranked
    shown = attention_geometry("inspect", "--head", "0.4", "--top", 4, text, cwd=tmp_path).text
    assert TEXT in shown
    assert "within_r_min" in shown
    assert "\x1b" not in ranked + shown, "a pipe has no colours"


REFUSED = {
    ("--head", "3.x"): "write layer and head, as in --head 3.1",
    ("--head", "9.0"): "has no head 9.0; choose one of 0.0 to 5.7",
    ("--every",): "name it, as in --head 3.1",
    ("--query", 100): "query must be from 1 to",
    ("--model", "synthetic"): "reads no text",
    ("--model", "./nosuch"): "nosuch",
    ("--dtype", "int3"): "dtype",
    ("--device", "cuda:99"): "cuda:99",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_done_is_one_line(options: tuple[object, ...], tmp_path: Path) -> None:
    refused = attention_geometry("inspect", *options, TEXT, cwd=tmp_path)
    assert REFUSED[options] in refused.complaint
    assert refused.text == ""
