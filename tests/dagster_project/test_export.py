"""The command ``export``: files as their readers expect them, nothing overwritten unasked; and of HeadVis all numbers.

These are compared with eager attention in float64.
"""

import json
import math
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from dagster_project.command.export import export_heads, export_headvis, read_settings
from dagster_project.study.home import Home
from dagster_project.study.studies import parse_study
from extract.hub import silence_libraries
from reports.scores.files import Choice
from reports.scores.headvis import choose_examples
from storage.errors import UserError
from storage.warehouse.connection import connect
from tests.dagster_project import recorded
from tests.dagster_project.conftest import CONTEXT, SEQUENCES
from tests.dagster_project.driver import attention_geometry

HEADS = [[layer, head] for layer in range(2) for head in range(4)]
THEIRS = {
    "self_attention_score",
    "prev_token_score",
    "pattern_entropy",
    "qk_distance",
    "qk_distance_variance",
    "induction_score",
}

# --- what HeadVis and the importer of Neuronpedia read ---


CONFIG = {
    "model_name": str, "np_model_id": None, "dataset_name": str, "heads": list, "n_layers": int, "n_heads": int,
    "n_intervals": int, "metrics": list, "metric_descriptions": dict, "head_data_pattern": str, "has_umap": bool,
    "umap_heads": list, "custom_plots": list, "custom_tables": list, "statistics_display": dict,
    "pipeline_config": dict,
}  # fmt: skip
"""The fields of ``config.json`` and their types, as HeadVis has them."""

HEAD = {"sequences", "qk_distance_histogram", "top_query_tokens", "top_key_tokens", "histogram", "statistics"}
SEQUENCE = {
    "sequence_id", "interval", "tokens", "attention_indices", "attention_values", "seq_len", "max_activation",
}  # fmt: skip


def check_head(head: dict[str, Any]) -> None:
    """Fail if the file of a head is not as HeadVis expects it; its numbers are read by other tests."""
    assert head.keys() == HEAD
    for one in head["sequences"]:
        places = [divmod(index, one["seq_len"]) for index in one["attention_indices"]]
        assert one.keys() == SEQUENCE
        assert len(one["tokens"]) == one["seq_len"]
        assert all(key <= query for query, key in places)
        assert places == sorted(set(places))
    for histogram in (head["qk_distance_histogram"], head["histogram"]):
        assert len(histogram["bin_edges"]) == len(histogram["bin_values"]) + 1
    assert head["statistics"].keys() == {"n_samples", "mean_max_activation"}
    assert head["statistics"]["n_samples"] == len({one["sequence_id"] for one in head["sequences"]})


def load(path: Path) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(path.read_bytes().decode("utf-8"), parse_constant=refuse)


def check_tree(folder: Path) -> None:
    """Fail if a file is not as its readers expect it."""
    config = load(folder / "config.json")
    assert config.keys() == CONFIG.keys()
    assert all(kind is None or isinstance(config[field], kind) for field, kind in CONFIG.items())
    read = config["pipeline_config"]
    assert {"n_sequences", "seq_len", "dtype", "attn_implementation"} <= read.keys()  # as Neuronpedia's importer needs
    names = [config["head_data_pattern"].format(layer=layer, head=head) for layer, head in config["heads"]]
    others = ["config.json", "scatter_data.json", "server_config.json", "attributions/manifest.json"]
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert sorted(found) == sorted([*others, *(f"heads/{name}" for name in names)])
    assert [load(folder / name) for name in others[2:]] == [{}, {}]
    rows = load(folder / "scatter_data.json")
    assert sorted([row.pop("layer"), row.pop("head")] for row in rows) == config["heads"]
    for row in rows:
        assert list(row) == config["metrics"] == list(config["metric_descriptions"])
        assert all(isinstance(value, float | None) for value in row.values())
    assert None not in rows[0].values()  # HeadVis offers what the first row has
    for name in names:
        head = load(folder / "heads" / name)
        check_head(head)
        assert set(config["statistics_display"]) == set(head["statistics"])
        assert all(one["interval"] <= config["n_intervals"] for one in head["sequences"])
        assert sum(head["histogram"]["bin_values"]) == read["n_sequences"]
        assert {one["seq_len"] for one in head["sequences"]} == {read["seq_len"]}


# --- the tree of a study ---


@pytest.fixture(scope="module")
def tree(mine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("headvis") / "data"
    done = attention_geometry("export", "mine", "--format", "headvis", "--out", folder, home=mine)
    assert (done.code, done.text) == (0, f"{folder}\n"), done.errors
    return folder


@pytest.fixture(scope="module")
def weights(mine: Path, inputs: Path) -> np.ndarray:
    """Eager attention in float64, (sequences, layers, heads, K, K)."""
    with silence_libraries(), torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(inputs / "llama", attn_implementation="eager").double()
        found = model(torch.from_numpy(read_ids(mine)), output_attentions=True).attentions
    return torch.stack(found, dim=1).numpy()


def ask(mine: Path, column: str, table: str) -> list[Any]:
    """What the study has landed in a column."""
    with duckdb.connect(str(mine / "warehouse" / "mine.duckdb"), read_only=True) as connection:
        found = connection.sql(f"SELECT {column} FROM {table} ORDER BY ALL").fetchall()
    return [value for *_, value in found]


def read_ids(mine: Path) -> np.ndarray:
    return np.array(ask(mine, "sequence, position, token_id", "tokens"), np.int64).reshape(SEQUENCES, CONTEXT)


def read_head(tree: Path, layer: int, head: int) -> dict[str, Any]:
    content: dict[str, Any] = load(tree / "heads" / f"L{layer}H{head}.json")
    return content


def test_nothing_is_said_of_the_machine(tree: Path, mine: Path, inputs: Path) -> None:
    """The tree is for others; the study's model and text are files of this machine."""
    assert str(inputs) in str(ask(mine, "provenance", "studies"))
    assert not [path for path in tree.rglob("*.json") if str(inputs) in path.read_text(encoding="utf-8")]
    assert load(tree / "config.json")["model_name"] == "llama"


def test_every_file_is_as_its_readers_expect(tree: Path) -> None:
    check_tree(tree)
    config = load(tree / "config.json")
    assert config["heads"] == HEADS
    assert {metric for metric in config["metrics"] if metric in THEIRS} == THEIRS
    for metric in ("recall_last_query", "specificity_last_query", "auc_above_shuffled", "rho_0", "sink_share"):
        assert {metric, f"{metric}_low", f"{metric}_high"} <= set(config["metrics"])
    assert "recall_every_query" not in config["metrics"]  # the study measured chosen queries


def test_examples_show_the_largest_weights_of_every_query(tree: Path, mine: Path, weights: np.ndarray) -> None:
    found = {}
    for layer, head in HEADS:
        largest = weights[:, layer, head, 1:, 1:].max(axis=(1, 2))
        sequences = read_head(tree, layer, head)["sequences"]
        assert [one["sequence_id"] for one in sequences] == largest.argsort().tolist()
        assert [one["interval"] for one in sequences] == [1, 2, 3, 4]  # of four sequences, all are examples
        for one in sequences:
            of_text = weights[one["sequence_id"], layer, head]
            assert one["max_activation"] == pytest.approx(largest[one["sequence_id"]], abs=6e-5)
            shown = np.zeros((CONTEXT, CONTEXT))
            np.put(shown, one["attention_indices"], one["attention_values"])
            for query in range(CONTEXT):
                row = np.sort(of_text[query, : query + 1])[::-1][:8]
                row = row[row >= 0.005]
                assert np.sort(shown[query])[::-1][: len(row)] == pytest.approx(row, abs=6e-5)
                assert np.count_nonzero(shown[query]) == len(row)
            there = shown > 0
            np.testing.assert_allclose(shown[there], of_text[there], atol=6e-5)
            found[one["sequence_id"]] = one["tokens"]
    texts = ask(mine, "sequence, position, token", "tokens")
    assert [text for sequence in sorted(found) for text in found[sequence]] == texts


def test_metrics_of_rows_are_those_of_float64(tree: Path, mine: Path, weights: np.ndarray) -> None:
    ids, rows = read_ids(mine), {(row["layer"], row["head"]): row for row in load(tree / "scatter_data.json")}
    query, key = np.indices((CONTEXT, CONTEXT))
    for layer, head in HEADS:
        row, of_head = rows[layer, head], weights[:, layer, head]
        own = [np.diagonal(one).mean() for one in of_head]
        previous = [np.diagonal(one, -1).mean() for one in of_head]
        entropy = [-sum(w * math.log(w) for w in one[one > 0]) / CONTEXT for one in of_head]
        distance = (of_head * (query - key)).sum() / SEQUENCES / CONTEXT
        square = (of_head * (query - key) ** 2).sum() / SEQUENCES / CONTEXT
        copied, matched = 0.0, 0
        for text, one in zip(ids.tolist(), of_head, strict=True):
            for q, token in enumerate(text):
                earlier = [j for j in range(q) if text[j] == token]
                matched += bool(earlier)
                copied += sum(one[q, j + 1] for j in earlier if one[q, j + 1] >= 0.01)
        assert row["self_attention_score"] == pytest.approx(np.mean(own), rel=1e-5)
        assert row["prev_token_score"] == pytest.approx(np.mean(previous), rel=1e-5)
        assert row["pattern_entropy"] == pytest.approx(np.mean(entropy), rel=1e-5)
        assert row["qk_distance"] == pytest.approx(distance, rel=1e-5)
        assert row["qk_distance_variance"] == pytest.approx(square - distance**2, rel=1e-4)
        assert row["induction_score"] == pytest.approx(copied / matched, rel=1e-4)
        reach = 3.182446305284263 * np.std(own, ddof=1) / 2  # t of 3 degrees of freedom
        assert row["self_attention_score_low"] == pytest.approx(np.mean(own) - reach, rel=1e-3)
        histogram = np.histogram(of_head[:, 1:, 1:].max(axis=(1, 2)), np.linspace(0, 1, 51))[0]
        assert read_head(tree, layer, head)["histogram"]["bin_values"] == histogram.tolist()


def test_distances_and_tokens_are_those_of_the_examples(tree: Path) -> None:
    found = read_head(tree, 1, 2)
    distances, queries, keys = Counter[int](), Counter[str](), Counter[str]()
    for one in found["sequences"]:
        for place, weight in zip(one["attention_indices"], one["attention_values"], strict=True):
            query, key = place // CONTEXT, place % CONTEXT
            distances[0 if query == key else int(math.log2(query - key)) + 1] += weight
            queries[one["tokens"][query]] += weight
            keys[one["tokens"][key]] += weight
    histogram = found["qk_distance_histogram"]
    assert histogram["bin_edges"] == [0, 1, 2, 4, 8, 16, 32, 64]
    assert histogram["bin_values"] == pytest.approx([distances[bin_] for bin_ in range(7)], abs=1e-4)
    for name, expected in (("top_query_tokens", queries), ("top_key_tokens", keys)):
        assert [row["weight"] for row in found[name]] == pytest.approx(
            [weight for _, weight in expected.most_common(50)], abs=1e-4
        )
        assert all(row["weight"] == pytest.approx(expected[row["token"]], abs=1e-4) for row in found[name])


def test_many_sequences_give_ten_of_the_highest_interval_and_three_of_each_other() -> None:
    chosen = choose_examples(64)
    assert [np.count_nonzero(chosen == interval) for interval in range(6)] == [42, 3, 3, 3, 3, 10]
    assert chosen[-10:].tolist() == [5] * 10
    for interval in range(1, 5):
        (ranks,) = np.nonzero(chosen == interval)
        assert set(ranks * 5 // 64) == {interval - 1}
    assert choose_examples(1).tolist() == [1]


# --- what is refused ---


@pytest.mark.slow
def test_a_folder_is_replaced_as_a_whole_and_not_if_it_has_other_files(tree: Path, mine: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tree, tmp_path / "data")
    command = ["export", "mine", "--format", "headvis", "--overwrite", "--out"]
    assert "exists already; add --overwrite" in attention_geometry(*command[:-2], "--out", folder, home=mine).complaint
    (folder / "heads" / "L9H9.json").write_text("{}")
    assert attention_geometry(*command, folder, home=mine).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    check_tree(folder)
    (folder / "umap").mkdir()
    (folder / "umap" / "L0H0.json").write_text("{}")
    for place, said in ((folder, "holds 'umap/L0H0.json', which no export"), (folder / "config.json", "is a file")):
        assert said in attention_geometry(*command, place, home=mine).complaint


def test_a_study_without_a_model_or_of_another_version(mine: Path, landed_root: Path, tmp_path: Path) -> None:
    command = ["export", "mine", "--format", "headvis", "--out", tmp_path / "x", "--by", "recall"]
    assert (
        "holds its own metrics, not 'recall' alone; leave out --by" in attention_geometry(*command, home=mine).complaint
    )
    with (
        closing(connect(Home(landed_root).warehouse, studies=["small"], described=False)) as connection,
        pytest.raises(UserError, match="'small' was landed by another version; run it again"),
    ):
        export_headvis(connection, "small", tmp_path / "x", overwrite=False)
    synthetic = parse_study("drawn", recorded.TINY, "here").select_extraction().model_dump(mode="json")
    with pytest.raises(UserError, match="'drawn' is synthetic: there is no model whose rows"):
        read_settings("drawn", {"settings": synthetic})
    assert list(tmp_path.iterdir()) == []


SCORES, DUO = (Choice(form, "effective_keys", sink_size=4, recent_size=8) for form in ("retrieval", "duo"))


def test_an_export_overwrites_nothing_unasked(landed_root: Path, tmp_path: Path) -> None:
    """Neither a checkpoint's configuration, which the format of DuoAttention also names so, nor a file beside it."""
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"config\.json exists already; add --overwrite"):
        export_heads(Home(landed_root), "small", tmp_path / "checkpoint", DUO)
    (tmp_path / "x.made_from.json").mkdir()
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"made_from\.json is not a regular file"):
            export_heads(Home(landed_root), "small", tmp_path / "x", SCORES, overwrite=overwrite)
    with pytest.raises(UserError, match="/ is not a regular file"):
        export_heads(Home(landed_root), "small", Path("/"), SCORES)
    assert {path.name for path in tmp_path.rglob("*")} == {"checkpoint", "config.json", "x.made_from.json"}
    export_heads(Home(landed_root), "small", tmp_path / "checkpoint", DUO, overwrite=True)
    assert json.loads((tmp_path / "checkpoint" / "config.json").read_text()) == {"sink_size": 4, "recent_size": 8}
