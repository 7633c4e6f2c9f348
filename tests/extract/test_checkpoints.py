"""Untrusted checkpoints: which files are read and hashed, and the one line for each that may not be; those shipped."""

import json
import os
import random
import re
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES, tokenizer_class_from_name

from dagster_project.study.home import Home
from dagster_project.study.studies import list_families, locate_shipped_file, read_studies
from extract import checkpoints
from extract.checkpoints import Checkpoint
from extract.hub import keep_while_unchanged
from extract.identity import find_training_folder, open_model
from extract.models import checks
from extract.models.checks import check_inputs, read_tensor_shapes
from extract.models.loading import describe, load
from extract.settings import ExtractionSettings, ModelSettings
from model_training import __main__ as train
from storage.errors import UserError
from tests.extract.gguf_files import outcome, write_gguf
from tests.extract.tiny import change_config, only_pickles, settings, split_weights
from tests.refusals import read_refusal


@pytest.fixture
def sharded(checkpoint: Path) -> Path:
    """The same checkpoint with its weights in two files, one of them in a folder, and an index."""
    return split_weights(checkpoint, "one.safetensors", "part/two.safetensors")


def opened(path: Path) -> Checkpoint:
    return Checkpoint.open(str(path), path)


def refusal(path: Path) -> str:
    """What is said of a checkpoint before anything heavy is imported."""
    said = read_refusal(check_inputs, settings(path))
    assert str(path) in said
    return said


# --- which files are read ---


def test_a_sharded_checkpoint_is_read_from_the_files_of_its_index(sharded: Path, original: Path) -> None:
    found = opened(sharded)
    assert found.weights == ("one.safetensors", "part/two.safetensors")
    assert read_tensor_shapes(found) == read_tensor_shapes(opened(original))
    ids = torch.arange(20)[None]
    plain, parts = (load(describe(settings(path))) for path in (original, sharded))
    with torch.inference_mode():
        assert torch.equal(plain(ids).logits, parts(ids).logits)


def test_a_snapshot_of_the_hubs_cache_links_to_its_blobs(checkpoint: Path, tmp_path: Path) -> None:
    repository = tmp_path / "models--acme--tiny"
    snapshot = repository / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, file in enumerate(sorted(checkpoint.iterdir())):
        file.rename(repository / "blobs" / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    check_inputs(settings(snapshot))
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (snapshot / "generation_config.json").unlink()
    (snapshot / "generation_config.json").symlink_to(outside)
    assert "has a link out of its directory, 'generation_config.json'" in refusal(snapshot)


@pytest.mark.slow
def test_every_vocabulary_that_transformers_knows_is_among_the_files_of_a_tokenizer(checkpoint: Path) -> None:
    classes = {
        name for names in TOKENIZER_MAPPING_NAMES.values() for name in (names if isinstance(names, tuple) else (names,))
    }
    known: set[str] = set()
    for name in filter(None, classes):
        try:
            known |= set(tokenizer_class_from_name(name).vocab_files_names.values())
        except (AttributeError, ImportError):  # of several tokenizers, or of a library that is not installed
            continue
    assert len(known) > 15
    for name in known:
        (checkpoint / name).write_text("{}")
    assert known - set(opened(checkpoint).tokenizer) == set()


def test_any_vocabulary_makes_a_tokenizer_and_bytes_need_none(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="has no tokenizer that can be read"):
        opened(checkpoint).check_tokenizer()
    for name in ("tokenizer.model.v3", "vocab.txt"):
        (checkpoint / name).write_text("{}")
        opened(checkpoint).check_tokenizer()
        (checkpoint / name).unlink()
    (checkpoint / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    opened(checkpoint).check_tokenizer()


def test_a_tokenizer_may_say_where_it_was(checkpoint: Path) -> None:
    said = json.loads((checkpoint / "tokenizer_config.json").read_text())
    said |= {"special_tokens_map_file": str(Path(__file__)), "vocab_file": "/no/such", "tokenizer_file": None}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(said | {"fast_tokenizer_files": ["tokenizer.json"]}))
    load(describe(settings(checkpoint)))


# --- hashes ---


CHANGED = {
    "config.json": {"model"},
    "one.safetensors": {"model"},
    "part/two.safetensors": {"model"},
    "model.safetensors.index.json": {"other"},
    "generation_config.json": {"other"},
    "tokenizer.json": {"tokenizer"},
    "additional_chat_templates/tools.jinja": {"tokenizer"},
    "README.md": set(),
    "part/notes.json": set(),
}


@pytest.mark.parametrize("name", CHANGED)
def test_each_file_that_is_read_is_hashed(name: str, sharded: Path) -> None:
    def hashes() -> dict[str, str]:
        found = opened(sharded).describe_files()
        other, tokenizer = (found[part][checkpoints.OTHER_FILES] for part in ("model", "tokenizer"))
        return {"model": found["model"]["sha256"], "other": other, "tokenizer": tokenizer}

    before = hashes()
    assert hashes() == before
    file = sharded / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes((file.read_bytes() if file.exists() else b"{}") + b"\n")
    assert {kind for kind, digest in hashes().items() if digest != before[kind]} == CHANGED[name]


# --- what must not be opened ---


def replaced_by_pipe(name: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        (path / name).unlink(missing_ok=True)
        os.mkfifo(path / name)

    return spoil


def outside(name: str) -> Callable[[Path], None]:
    """A link to a file beside the directory."""

    def spoil(path: Path) -> None:
        shutil.move(path / name, path.parent / "outside")
        (path / name).symlink_to(path.parent / "outside")

    return spoil


def index_of(*names: object, there: bool = True) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        weights = (path / "model.safetensors").rename(path / "one.safetensors").read_bytes()
        for name in names:
            if there and isinstance(name, str) and not name.startswith("/"):
                (path / name).write_bytes(weights)
        places = {"one": "one.safetensors"} | {str(number): name for number, name in enumerate(names)}
        (path / checkpoints.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))

    return spoil


def put(name: str, content: bytes) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        (path / name).write_bytes(content)

    return spoil


def header(text: bytes, size: int | None = None, data: bytes = b"") -> Callable[[Path], None]:
    return put("model.safetensors", struct.pack("<Q", len(text) if size is None else size) + text + data)


def config(**fields: object) -> Callable[[Path], None]:
    return lambda path: change_config(path, **fields)


def of_tokenizer(**fields: object) -> Callable[[Path], None]:
    return put("tokenizer_config.json", json.dumps(fields).encode())


def tokenizer_removed(path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).unlink()


ONLY = "only safetensors files are read"
OUTSIDE = "which are not inside the directory"
SPARSE = b'{"a":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}}'
DEEP = b"[" * 100_000
HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a vocabulary elsewhere": (of_tokenizer(vocab_file=__file__), "is not in the directory, vocab_file: '/"),
    "a tokenizer elsewhere": (
        of_tokenizer(fast_tokenizer_files=["part/../../tiny/x/tokenizer.4.0.json", "../tiny/tokenizer.json"]),
        "is not in the directory, fast_tokenizer_files: ",
    ),
    "no directory": (shutil.rmtree, "There is no model directory"),
    "no config": (lambda path: (path / "config.json").unlink(), "has no config.json"),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), "has no weights; write safetensors"),
    "no tokenizer": (tokenizer_removed, "has no tokenizer"),
    "a pipe for config.json": (replaced_by_pipe("config.json"), "'config.json', which is not a regular file"),
    "a pipe for anything": (replaced_by_pipe("README.md"), "'README.md', which is not a regular file"),
    "a link out for config.json": (outside("config.json"), "has a link out of its directory, 'config.json'"),
    "an adapter": (put("adapter_config.json", b"{}"), "has an adapter next to its weights"),
    "a distributed checkpoint": (
        put("shard-00000-model-00001-of-00001.safetensors", b""),
        "is a distributed checkpoint",
    ),
    "an index of pickles": (index_of("evil.bin"), f"names the weights 'evil.bin'; {ONLY}"),
    "an index that leads out": (index_of("../evil.safetensors"), OUTSIDE),
    "an index of control characters": (index_of("a\x1b[2J.safetensors"), r"'a\\x1b\[2J.safetensors'; only safetensors"),
    "an index of what is not there": (index_of("no-such.safetensors", there=False), "lacks the weights file 'no-such"),
    "weights of a pickle": (config(transformers_weights="evil.bin"), ONLY),
    "weights that are not there": (config(transformers_weights="no-such.safetensors"), "has no weights"),
    "config too deep": (put("config.json", DEEP), "is not valid: maximum recursion depth"),
    "config with half a character": (put("config.json", b'{"architectures": ["\\ud800"]}'), "surrogates not allowed"),
    "a header beyond memory": (header(b"{}", 2**62), "its header has 4611686018427387904 bytes, more than"),
    "tensors beyond the file": (header(SPARSE), "not valid safetensors"),
    "a text for hidden_size": (config(hidden_size="64"), "hidden_size should be a whole number, found '64'"),
    "less than nothing": (config(num_key_value_heads=-2), "num_key_value_heads should be 1 or more, found -2"),
    "too many layers": (
        config(num_hidden_layers=10**7),
        r"num_hidden_layers is 10000000, but the weights have 30 tensors",
    ),
    "too many experts": (config(num_local_experts=10**7), "num_local_experts is 10000000, more than the weights can"),
    "a part that is wrong": (config(text_config={"hidden_size": "64"}), "text_config.hidden_size should be a whole"),
    "too few positions": (config(max_position_embeddings=16), "reads at most 16 tokens, but context_length is 32"),
    "code of the hub": (config(attn_implementation="acme/evil"), "asks for code from the hub, which is never run"),
    "no names": (config(architectures=3), "architectures should be names, found 3"),
}


@pytest.mark.parametrize("mistake", HOSTILE)
def test_hostile_checkpoints_are_refused_at_once(mistake: str, checkpoint: Path) -> None:
    spoil, said = HOSTILE[mistake]
    spoil(checkpoint)
    found = refusal(checkpoint)
    assert re.search(said, found), found
    with pytest.raises(UserError):
        describe(settings(checkpoint))


def test_a_file_that_may_not_be_read_is_named(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert "has 'config.json', which cannot be read (Permission denied); check its permissions" in refusal(checkpoint)


@pytest.mark.parametrize(
    ("kind", "count", "refused"),
    [("safetensors", 12, range(7, 13)), pytest.param("gguf", 200, range(51, 190), marks=pytest.mark.slow)],
)
def test_damaged_headers_are_refused_in_one_line_or_read(
    kind: str, count: int, refused: range, checkpoint: Path
) -> None:
    """Bits flipped, and lengths, counts and numbers replaced."""
    model = checkpoint if kind == "safetensors" else write_gguf(checkpoint / "model.gguf")
    file, generator, found = checkpoint / f"model.{kind}", random.Random(7), 0
    whole = file.read_bytes()
    end = 8 + struct.unpack("<Q", whole[:8])[0] if model == checkpoint else whole.index(b"blk.0.attn_norm.weight") + 600
    for number in range(count):
        spoilt, at = bytearray(whole), generator.randrange(end)
        if number % 2:
            spoilt[at] ^= 1 << generator.randrange(8)
        else:
            spoilt[at : at + 8] = generator.choice((2**60, 2**31, 2**16, 0)).to_bytes(8, "little")
        file.write_bytes(spoilt)
        found += outcome(model) is not None
    assert found in refused


# --- sizes ---


@pytest.mark.slow
def test_the_sizes_of_all_architectures_are_known_by_their_names() -> None:
    standard = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
    known = list(MODEL_FOR_CAUSAL_LM_MAPPING)
    kinds = [*known, *(kind.sub_configs["text_config"] for kind in known if "text_config" in kind.sub_configs)]
    names = {kind.attribute_map.get(size, size) for kind in kinds if kind is not AutoConfig for size in standard}
    encoders = {name for name in names if "encoder" in name and "decoder" not in name}
    assert names - encoders <= set(checks.SIZES)


BPE = b'"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [%s]}}'
PATTERN = b'{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}, '
UNLOADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "another shape": (
        config(intermediate_size=32),
        r"down_proj.weight has the shape \[64, 64\], expected \[64, 32\] \(and 8 more\); get the configuration",
    ),
    "more than quantised weights can hold": (
        config(intermediate_size=25600, quantization_config={"quant_method": "acme"}),
        "parameters, but its weights hold",
    ),
    "no content": (put("tokenizer.json", b""), "has no tokenizer"),
    "merges of what is not there": (put("tokenizer.json", b"{" + BPE % b'"x y"'), "has no tokenizer"),
    "a broken pattern": (put("tokenizer.json", PATTERN + BPE % b""), "has no tokenizer"),
    "a tokenizer too deep": (put("tokenizer.json", DEEP), "has no tokenizer"),
    "pickles": (only_pickles, r"has only pickled weights \(pytorch_model.bin\), which may run code"),
    "own code": (
        config(model_type="own", auto_map={"AutoConfig": "own.Config"}),
        r"needs its own code \(trust_remote_code\), which is never run",
    ),
    "unknown type": (config(model_type="own"), "is of type 'own', which transformers .* not"),
    "no decoder": (config(model_type="t5"), "is of type 't5', which is not a causal language"),
}


@pytest.mark.parametrize("mistake", UNLOADABLE)
def test_what_libraries_would_find_wrong_is_one_line(mistake: str, checkpoint: Path) -> None:
    spoil, said = UNLOADABLE[mistake]
    spoil(checkpoint)
    assert re.search(said, outcome(checkpoint) or "")


def test_sizes_beyond_memory_are_refused_before_weights_are_read(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("the weights were read"))
    with monkeypatch.context() as patched:
        patched.setattr("extract.models.loading.find_machine_memory", lambda: 1e5)
        said = outcome(checkpoint) or ""
    assert "needs 0.0 GB of memory, but this machine has 0.0 GB; set dtype: bfloat16" in said
    change_config(checkpoint, intermediate_size=2**40)
    assert re.search(r"describes 6\d\d(,\d{3}){4} parameters, but its weights hold \d", outcome(checkpoint) or "")
    monkeypatch.setattr(checkpoints, "JSON_BYTES", 2**9)
    assert "is larger than 0 MiB" in refusal(checkpoint)


def test_a_file_is_read_again_if_it_has_changed_whatever_its_size_and_time(tmp_path: Path) -> None:
    read = keep_while_unchanged(most=2)(lambda path: [path.read_text()])
    path, long_ago = tmp_path / "a", 10**18  # nanoseconds since the epoch

    def write(content: str, at: int = long_ago, place: Path = path) -> Path:
        place.write_text(content)
        os.utime(place, ns=(at, at))
        return place

    write("one")
    assert read(path) is read(path)
    write("two")
    assert read(path) == ["two"]
    write("six", place=tmp_path / "new").replace(path)
    assert read(path) == ["six"]
    for seconds in (0, 3600):  # a change just now, and one by a clock that is ahead, may be followed by another
        write("one", time.time_ns() + seconds * 10**9)
        assert read(path) is not read(path)


def test_the_shipped_checkpoints_are_those_of_the_recipe(tmp_path: Path) -> None:
    family = list_families(Home(tmp_path))["training"]
    steps = [f"step{step}" for step in train.RECIPES["training"].checkpoints]
    assert list(family.members.values()) == steps
    studies = read_studies(locate_shipped_file())
    for member, step in family.members.items():
        check_inputs(studies[member])
        assert open_model(studies[member].model).files.path == find_training_folder(step)  # type: ignore[union-attr]


def test_a_step_without_a_checkpoint_is_refused() -> None:
    for revision in ("step7", "main", "../model"):
        model = ModelSettings(id="training", revision=revision)
        with pytest.raises(UserError, match=r"has no revision .*; it has step0, step32, .*, step2048"):
            open_model(model)
    given = {"model": {"id": "training", "gguf": "a.gguf"}, "corpus": "prose", "context_length": 8}
    with pytest.raises(ValueError, match="only allowed with a directory or a hub id"):
        ExtractionSettings.model_validate(given)
