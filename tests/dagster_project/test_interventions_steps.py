"""The steps of what heads do: rows beside a slow reading, what a kill leaves, and what is landed."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
import torch

from dagster_project.analysis import interventions
from dagster_project.analysis.sources import Sources, open_sources
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from dagster_project.upkeep.doctor import verify
from extract.effects import sparsity
from extract.effects.ablation import estimate_ablation_bytes
from extract.effects.interventions import UneditableError
from storage.errors import UserError
from storage.files.pieces import Pieces, read_pieces
from storage.files.places import LocalPlace
from tests.dagster_project import making, recorded
from tests.dagster_project.intervals import columns, near, of_mean
from tests.extract.tiny import text, write_checkpoint
from tests.sql.hand_made import find_elbow

NAME, KEYS, KINDS = "tiny", 24, ("zero", "mean", "sink")
SETTINGS = {"ablation": KINDS, "sequences": 3, "budgets": [0.2, 0.5], "held_out": 2, "draws": 1}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A data root with a study of two layers, whose effects and what they need are made."""
    root = tmp_path_factory.mktemp("effects")
    write_checkpoint(root / "llama", num_hidden_layers=2)
    (root / "book.txt").write_text(text(600), encoding="utf-8")
    settings = {"model": str(root / "llama"), "corpus": str(root / "book.txt"), "context_length": KEYS, "sequences": 4}
    recorded.write_studies(root, **{NAME: settings | {"analysis": {"effects": SETTINGS}}})
    home = Home(root)
    making.extract(home, NAME)
    making.measure(home, NAME)
    making.summarise(home, NAME)
    return home


def study_of(home: Home) -> Study:
    return making.work(home, NAME).study


def rows(home: Home, table: str) -> list[Row]:
    return making.rows(home, NAME, table)


@pytest.fixture(scope="module")
def sources(home: Home) -> Sources:
    """What the steps read."""
    read = ("selection_means", "key_budgets")
    parts = {table: LocalPlace(making.find_part(home, NAME, table)) for table in read}
    return replace(open_sources(home, NAME, study_of(home)), parts=parts)


@pytest.fixture(scope="module")
def opened(sources: Sources) -> Any:
    """The model and its sequences."""
    return interventions._open_model(sources, estimate_ablation_bytes)


def test_ablation_is_that_of_a_slow_reading(home: Home, opened: Any) -> None:
    """z of one head replaced by a hook on what the output projection reads; means, intervals and KL in float64."""
    ids = opened.select_ids(3)

    def logits(sequence: int, layer: int | None = None, head: int = 0) -> torch.Tensor:
        size = opened.model.config.head_dim

        def zero(_: object, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            changed = given[0].clone()
            changed[..., head * size : (head + 1) * size] = 0
            return (changed,)

        hook = None
        if layer is not None:
            hook = opened.model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(zero)
        with torch.inference_mode():
            found = opened.model(input_ids=ids[sequence : sequence + 1], use_cache=False).logits[0].double()
        if hook:
            hook.remove()
        return found.log_softmax(-1)

    found = {(row["layer"], row["head"], row["kind"]): row for row in rows(home, "head_ablation")}
    heads, by_sequence = opened.attention.layers[0].heads, rows(home, "head_ablation_by_sequence")
    assert set(found) == {(layer, head, kind) for layer in range(2) for head in range(heads) for kind in KINDS}
    plain = [logits(sequence) for sequence in range(3)]

    def loss(of: torch.Tensor, sequence: int) -> float:
        return -float(of[:-1].gather(1, ids[sequence, 1:, None]).mean())

    for layer, head in ((0, 1), (1, 0)):
        changed = [logits(sequence, layer, head) for sequence in range(3)]
        delta = np.array([loss(changed[s], s) - loss(plain[s], s) for s in range(3)])
        kl = np.array([float((plain[s].exp() * (plain[s] - changed[s])).sum(-1).mean()) for s in range(3)])
        row = found[layer, head, "zero"]
        wanted = columns("delta_loss", of_mean(delta)) | columns("kl", of_mean(kl, (0, np.inf)))
        assert near(row, wanted, abs_=1e-6)
        of_sequences = [one for one in by_sequence if (one["layer"], one["head"], one["kind"]) == (layer, head, "zero")]
        assert [one["sequence"] for one in of_sequences] == [0, 1, 2]
        unchanged = np.array([loss(plain[s], s) for s in range(3)])
        for name, numbers in (("plain_loss", unchanged), ("delta_loss", delta), ("kl", kl)):
            assert [one[name] for one in of_sequences] == pytest.approx(numbers, abs=1e-6)
        assert row["plain_loss"] == pytest.approx(unchanged.mean(), abs=1e-6)
        assert abs(delta.mean()) > 1e-5  # so that the comparison can fail
        assert row["delta_loss"] != pytest.approx(found[layer, head, "mean"]["delta_loss"], abs=1e-7)


def test_only_the_policies_that_are_named_are_measured(sources: Sources, opened: Any) -> None:
    settings = sources.study.analysis.effects
    assert settings is not None

    def names(*policies: str) -> list[str]:
        some = settings.model_copy(update={"policies": policies})
        return [policy.name for _, _, policy in interventions._list_policies(opened, sources, some)]

    assert names("mass", "error_mean") == ["same_n", "error_mean", "mass"] * 2
    assert len(names()) > 30
    with pytest.raises(UserError, match=r"no policy mas \(analysis.effects.policies\); there are elbow, error, "):
        names("mas", "mass")


def test_what_is_known_of_heads_is_what_the_tables_say(home: Home, sources: Sources, opened: Any) -> None:
    heads: Any = interventions.describe_heads(opened, sources, sources.study.analysis.effects)
    for row in rows(home, "selection_means"):
        assert heads.recall[row["layer"], row["head"], row["n"] - 1] == row["recall"]
    assert heads.recall.shape == (2, 4, KEYS - 1)
    assert np.isfinite(heads.recall).all()
    curves: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in rows(home, "selection_means"):
        curves.setdefault((row["layer"], row["head"]), []).append((row["precision"], row["recall"]))
    for place, curve in curves.items():
        assert heads.numbers["elbow"][place] == pytest.approx(find_elbow(curve)["elbow_n"] or np.nan, nan_ok=True)
    counted = [np.searchsorted(np.sort(one)[::-1].cumsum(), 0.9 * one.sum()) + 1 for one in weights(sources)]
    np.testing.assert_allclose(heads.numbers["n_90"], np.reshape(counted, (4, 2, -1)).mean(axis=0))
    for row in rows(home, "key_budgets"):
        if row["query"] == sources.query:
            found = [heads.numbers[name][row["layer"], row["head"]] for name in ("error", "error_mean")]
            assert found == [row["n_renormalised_10"], row["n_mean_10"]]
    known = [one[one > 0] / one.sum() for one in weights(sources)]
    entropies = np.exp([-(p * np.log(p)).sum() for p in known])
    np.testing.assert_allclose(heads.scores["mass"], entropies.reshape(4, 2, -1).mean(axis=0), rtol=1e-5)


def weights(sources: Any) -> np.ndarray:
    """Weights of the last query, (sequences · layers · heads, keys)."""
    found = sources.tensors.read("attention", ...)[:, -1]
    return np.asarray(found, np.float64).reshape(-1, found.shape[-1])


def test_policies_of_a_budget_cost_the_same(home: Home) -> None:
    found = rows(home, "sparsified_loss")
    assert len({(row["policy"], row["setting"], row["budget"]) for row in found}) == len(found)
    by_budget = {budget: [row for row in found if row["budget"] == budget] for budget in (0.2, 0.5)}
    for budget, at in by_budget.items():
        (same,) = (row for row in at if row["policy"] == "same_n")
        assert same["keys"] == round(budget * KEYS)
        assert same["excess_loss"] == 0
        assert {"elbow", "n_90", "recall", "mass", "sink_recent", "random_budgets"} <= {row["policy"] for row in at}
        for row in at:
            assert row["excess_loss"] == pytest.approx(row["delta_loss"] - same["delta_loss"], abs=1e-12)
            assert row["keys_kept"] == pytest.approx(same["keys_kept"], rel=0.25)
            assert row["needs"] == (
                "statistics" if row["policy"].startswith(("sink_recent", "full_heads")) else "weights"
            )
    assert by_budget[0.2][0]["keys_kept"] < by_budget[0.5][0]["keys_kept"]
    assert {row["sequences"] for row in found} == {2}


def test_a_measurement_that_was_stopped_goes_on_with_what_is_missing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, measured = rows(home, "sparsified_loss"), sparsity.measure_policy_losses
    measure = Mock(wraps=measured, side_effect=[DEFAULT, UserError("stop"), DEFAULT])  # of two sequences
    monkeypatch.setattr(sparsity, "measure_policy_losses", measure)
    with pytest.raises(UserError, match="stop"):
        making.make(home, NAME, ["sparsified_loss"], force=True)
    making.make(home, NAME, ["sparsified_loss"], force=True)
    assert measure.call_count == 3
    assert rows(home, "sparsified_loss") == before


KILLED = """
import os, signal, sys
from pathlib import Path
from dagster_project.study.home import Home
from storage.files.pieces import Pieces
from tests.dagster_project import making

write, left = Pieces.write, [int(sys.argv[3])]

def counted(self, name, content):
    write(self, name, content)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

Pieces.write = counted
making.make(Home(Path(sys.argv[1])), "tiny", [sys.argv[2]], force=True)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("asset", "pieces", "tables"),
    [
        ("head_ablation", 4, ("head_ablation", "head_ablation_by_sequence")),
        ("sparsified_loss", 1, ("sparsified_loss", "sparsified_loss_by_sequence")),
    ],
)
def test_what_is_killed_goes_on_to_equal_tables(
    home: Home, asset: str, pieces: int, tables: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {table: rows(home, table) for table in tables}
    command = [sys.executable, "-c", KILLED, str(home.root), asset, str(pieces)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    file = home.parts(NAME) / f"{asset}.pieces"
    assert len(file.read_bytes().splitlines()) == pieces + 1
    assert [each.damage for each in verify(home) if each.damage] == []
    content = file.read_text(encoding="utf-8")
    digit = re.compile(r"\d\.\d*([1-8])").search(content, content.index("plain_loss")).start(1)  # of the first number
    file.write_text(f"{content[:digit]}{int(content[digit]) + 1}{content[digit + 1 :]}", encoding="utf-8")
    (damage,) = [each.damage for each in verify(home) if each.damage]
    assert damage.endswith(f"; continue the run, which computes it again: attention-geometry run {NAME}")
    written: list[str] = []
    write: Callable[..., None] = Pieces.write
    monkeypatch.setattr(Pieces, "write", lambda self, name, content: (written.append(name), write(self, name, content)))
    making.make(home, NAME, [asset], force=True)
    total = 3 * 2 if asset == "head_ablation" else 2
    assert len(written) == total - pieces + 1
    assert {table: rows(home, table) for table in tables} == before
    assert not file.exists()


def test_a_model_whose_attention_cannot_be_edited_is_skipped_with_one_line(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a model read in two passes, which ``tests.extract`` sees refused."""

    def refused(*_: object) -> None:
        raise UneditableError("it computes its attention by itself")

    monkeypatch.setattr("extract.effects.losses.open_study", refused)
    sources = open_sources(home, NAME, study_of(home))
    assert list(interventions.compute_head_ablation(sources)) == []
    assert list(interventions.compute_sparsified_loss(sources)) == []
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["tiny: effects of heads are not measured: it computes its attention by itself"] * 2


def test_too_little_memory_is_one_line_before_the_first_pass(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_project.analysis.memory.measure_free_memory", lambda: 10**5)
    for step in ("head_ablation", "sparsified_loss"):
        with pytest.raises(UserError, match=r"Measuring effects of heads of 'tiny' needs .* MB of memory, but 0\.1 MB"):
            making.make(home, NAME, [step], force=True)
        assert read_pieces(home.parts(NAME) / f"{step}.pieces")[0].keys() <= {"made_from"}


def test_too_little_text_for_held_out_sequences_is_one_line(home: Home) -> None:
    study = study_of(home)
    assert study.analysis.effects is not None
    greedy = study.analysis.effects.model_copy(update={"held_out": 999})
    changed = study.model_copy(update={"analysis": study.analysis.model_copy(update={"effects": greedy})})
    with pytest.raises(UserError, match="of 999 requested held-out sequences"):
        making.make(home, NAME, ["sparsified_loss"], changed)
