"""GGUF files as models: the weights, tokenizer and name of the file, and only those; files of distributions."""

import hashlib
import os
import random
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.integrations.gguf import convert_gguf_tokenizer

from attention_geometry import analyze
from extract.gguf import families as gguf_families
from extract.gguf import header as gguf_header
from extract.gguf import loading as gguf_loading
from extract.gguf import models as gguf_models
from extract.gguf.header import Header, HeaderError, read_header
from extract.gguf.loading import list_architectures
from extract.gguf.models import can_dequantise, find_package_file, list_types
from extract.models.checks import check_inputs
from extract.models.loading import decode_tokens, describe, load
from extract.settings import CorpusSettings, ExtractionSettings, ModelSettings
from extract.texts.corpora import select_windows
from extract.texts.decoding import encode_text
from tests.extract.gguf_files import (
    WRITTEN,
    array,
    entry,
    list_tensors,
    make_model,
    outcome,
    raw_gguf,
    replace_weights,
    tensor,
    text,
    write_gguf,
)
from tests.extract.tiny import compute_logits, read_logits, save, settings
from tests.memory import trace
from tests.refusals import read_refusal

Q4_K = {"hidden_size": 256, "head_dim": 64, "intermediate_size": 256, "num_hidden_layers": 1}
"""Sizes that blocks of 256 divide."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def refusal(model: object, call: Callable[[ExtractionSettings], object] = describe, **others: object) -> str:
    return read_refusal(call, settings(model, **others))


def read(model: object) -> PreTrainedModel:
    return load(describe(model if isinstance(model, ExtractionSettings) else settings(model)))


def test_the_header_of_a_file_is_parsed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For configuration, tokenizer and weights, and never by ``gguf.GGUFReader``."""
    file, parsed, original = write_gguf(tmp_path / "own.gguf"), [], gguf_header._Reader.read
    monkeypatch.setattr(gguf_header._Reader, "read", lambda reader: parsed.append(reader) or original(reader))
    monkeypatch.setattr(gguf.GGUFReader, "__init__", None)
    os.utime(file, ns=(10**18, 10**18))  # as if written long ago
    describe(settings(file)).config.vocab_size = 1  # which the next caller does not get
    logits = compute_logits(read(file))
    assert next(decode_tokens(ModelSettings(id=str(file)), np.array([[5]])))
    assert len(parsed) == 1
    content = file.read_bytes()
    file.write_bytes(content[:-4] + struct.pack("<f", 9.0))
    os.utime(file, ns=(10**18, 10**18))
    assert not torch.equal(compute_logits(read(file)), logits)
    assert len(parsed) == 2


CASES = [
    ("llama", "F16", {}),
    ("gpt2", "Q8_0", {}),
    ("llama", "Q4_1", {"tie_word_embeddings": True}),
    ("llama", "Q4_K", Q4_K),
    ("lfm2", "Q8_0", {}),
]


@pytest.mark.parametrize(("architecture", "kind", "sizes"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_logits_are_those_of_the_same_weights_in_safetensors(
    architecture: str, kind: str, sizes: dict[str, object], tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", architecture, kind, model=make_model(architecture, **sizes))
    reference = replace_weights(make_model(architecture, **sizes), kind)
    expected, found = compute_logits(read(save(reference, tmp_path / "tiny"))), compute_logits(read(file))
    # dequantisation rounds scale * integer + offset to float32, at most three times; the logits are sums of some 2^8
    # products over a few layers
    torch.testing.assert_close(found, expected, rtol=0, atol=float(expected.abs().max()) * 2**-12)
    if kind == "F16" and architecture == "llama":  # with the rows of queries and keys in another order
        wrong = write_gguf(tmp_path / "tiny.gguf", permuted=False)
        assert (compute_logits(read(wrong)) - expected).abs().max() > 0.01


def test_a_file_is_hashed_and_converted_to_the_type_that_is_asked_for(file: Path) -> None:
    description = describe(settings(file, dtype="bfloat16"))
    assert description.provenance["model"]["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert description.provenance["model"]["quantisation"] == "F32, converted to bfloat16"
    assert {parameter.dtype for parameter in load(description).parameters()} == {torch.bfloat16}


def test_a_tokenizer_that_cannot_read_a_text_is_refused_in_one_line() -> None:
    """Its vocabulary is Gemma's of a file without ``<unk>`` and without bytes."""
    given = {"tokenizer_type": "llama", "tokens": ["a", "▁"], "scores": [0.0, 0.0], "merges": []}
    backend, _ = convert_gguf_tokenizer("gemma2", given)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert encode_text(tokenizer, "a a") == [0, 1, 0]
    corpus = CorpusSettings(id="embedded")
    for refused in (
        lambda: encode_text(tokenizer, "z"),
        lambda: analyze(make_model("llama"), tokenizer, "z"),
        lambda: select_windows(corpus, tokenizer, 8, 1, 0),
    ):
        assert "tokenizer cannot read the text (Unk token `<unk>` not found" in read_refusal(refused)


def test_a_file_that_is_cut_while_it_is_read_does_not_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    described = describe(settings(file))
    begin = gguf_loading._CheckedReader.__init__

    def cut(reader: gguf_loading._CheckedReader, path: str) -> None:
        begin(reader, path)
        os.truncate(file, 2**12)

    monkeypatch.setattr(gguf_loading._CheckedReader, "__init__", cut)
    assert "the file was cut while it was read" in read_refusal(load, described)


def test_only_the_file_itself_is_read(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what lies next to it, nor a file of its name in the working directory."""
    (tmp_path / "model.gguf").write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "evil"}')
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}')
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "model.gguf").write_bytes(b"other")
    monkeypatch.chdir(tmp_path / "here")
    for model in (tmp_path / "model.gguf", {"id": str(tmp_path), "gguf": "model.gguf"}):
        assert torch.equal(compute_logits(read(model)), compute_logits(read(file)))


def test_a_file_of_a_directory_may_be_named(file: Path, tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "tiny.gguf").symlink_to(file)
    named = {"id": str(tmp_path), "gguf": "q/tiny.gguf"}
    assert "has a link out of its directory, 'q/tiny.gguf'" in refusal(named, check_inputs)
    (tmp_path / "q" / "tiny.gguf").unlink()
    (tmp_path / "q" / "tiny.gguf").write_bytes(file.read_bytes())
    description = describe(settings(named))
    assert description.source.name == f"{tmp_path}/q/tiny.gguf"
    assert description.provenance["model"]["id"] == str(tmp_path)
    (tmp_path / "other.gguf").touch()
    for model, said in (
        (
            {"id": str(tmp_path), "gguf": "no.gguf"},
            "has no file 'no.gguf' in its directory; .gguf files there: other.gguf",
        ),
        (tmp_path, "has no config.json; name its GGUF file with --gguf other.gguf"),
        ({"id": "/no/where", "gguf": "a.gguf"}, "There is no model directory '/no/where'"),
    ):
        assert said in refusal(model, check_inputs)


# --- refused ---


def test_architectures_and_types_that_are_not_read_are_refused_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    assert {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS"} <= set(list_types())
    assert not {"Q8_1", "I32", "F64"} & set(list_types())
    with monkeypatch.context() as patched:
        patched.setattr(gguf_models, "can_dequantise", lambda kind: kind != "F32" and can_dequantise(kind))
        said = refusal(file, check_inputs)
    assert "stores 'token_embd.weight' as F32, which cannot be dequantised; these types can: F16, Q4_0, Q4_1" in said
    file.write_bytes(file.read_bytes().replace(text("llama"), text("plamo"), 1).replace(b"llama.", b"plamo."))
    said = refusal(file)
    assert "the architecture 'plamo', which is not read from GGUF files" in said
    assert f"these are: {', '.join(list_architectures())}; measure" in said
    monkeypatch.setattr(gguf_loading, "is_kernels_available", lambda: True)
    said = refusal(write_gguf(tmp_path / "mixed.gguf", "lfm2"))
    assert "'lfm2', for which transformers fetches kernels from the hub, because the package kernels" in said


BUILT = "but the model that transformers builds has"
REFUSED: list[tuple[str, str, object, str]] = [
    ("llama", "llama.block_count", 1, "not read, blk.1.attn_q.weight, .* and 6 more: layers"),
    ("llama", "llama.block_count", 10**9, "has llama.block_count 1000000000, but at most 21 fits"),
    ("llama", "llama.embedding_length", 10**9, "describes .* parameters, but its weights hold"),
    ("llama", "llama.vocab_size", -1, f"says llama.vocab_size = -1, {BUILT}"),
    ("llama", "llama.context_length", 16, "reads at most 16 tokens, but context_length is 32"),
    ("llama", "general.type", "adapter", r"holds no model, but is of type 'adapter' \(general.type\)"),
    ("llama", "mistral.attention.sliding_window", 8, "sliding_window, an entry of another architecture"),
    ("llama", "split.count", 3, "is one of '3' files of a model; merge them"),
    ("llama", "llama.rope.scaling.type", "yarn", f"says llama.rope.scaling.type = yarn, {BUILT} none in its place"),
    ("llama", "tokenizer.ggml.bos_token_id", 320, "bos_token_id '320', but 320 tokens"),
    ("qwen2", "qwen2.attention.sliding_window", 8, f"attention.sliding_window = 8, {BUILT} 0 in its place"),
    ("llama", "llama.attention.of_tomorrow", 3, f"attention.of_tomorrow = 3, {BUILT} nothing that reads it"),
    ("llama", "llama.attention.head_count_kv", [2, 4], rf"head_count_kv = \[2, 4\], {BUILT} the same in all layers"),
    ("starcoder2", "starcoder2.attention.sliding_window", None, "has no starcoder2.attention.sliding_window, without"),
    ("gemma3", "gemma3.attention.scale", 5.0, f"says gemma3.attention.scale = 5.0, {BUILT} 1.0"),
    ("gemma3", "gemma3.attention.scale", 0.0, "does not say the scale of its logits, which is known for the published"),
]


@pytest.mark.parametrize(("architecture", "entry", "value", "said"), REFUSED)
def test_metadata_that_contradict_the_file_are_refused(
    architecture: str, entry: str, value: object, said: str, tmp_path: Path
) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", architecture, metadata={entry: value})
    found = refusal(file, check_inputs if " and " not in said and "parameters" not in said else read)
    assert re.search(said, found), found


# --- every architecture ---

assert [*WRITTEN] == list_architectures()
every_architecture = pytest.mark.parametrize("architecture", WRITTEN)


def differ(path: Path, model: PreTrainedModel) -> float:
    """How far the logits of a file are from those of a model, relative to the largest."""
    expected = compute_logits(model)
    return float((read_logits(path) - expected).abs().max() / expected.abs().max())


ROTATIONS = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
SCALED = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
MEANT: dict[str, tuple[str, dict[str, object]]] = {
    "biases of LLaMA": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "scaled positions of the layers of Gemma 3 that see all keys": ("gemma3", {"rope_parameters": ROTATIONS}),
    "positions of GPT-2": ("gpt2", {"n_positions": 50}),
    "layers side by side": ("stablelm", {"use_parallel_residual": True}),
}


@pytest.mark.parametrize("what", MEANT)
def test_fields_that_the_reader_of_transformers_forgets_are_read(what: str, tmp_path: Path) -> None:
    architecture, meant = MEANT[what]
    model, entries = make_model(architecture, **meant), SCALED if "scaled" in what else {}
    path = write_gguf(tmp_path / "tiny.gguf", architecture, model=model, metadata=entries)
    assert differ(path, model) <= 1e-5
    if what not in {"biases of LLaMA", "positions of GPT-2"}:  # which random numbers follow
        assert differ(path, make_model(architecture)) > 1e-5  # so that the comparison is one


KNOWN = {
    text.removeprefix("{arch}.")
    for name, group in vars(gguf.Keys).items()
    if not name.startswith("_")
    for text in map(str, vars(group).values())
    if text.startswith("{arch}.")
}
"""All entries of an architecture that GGUF knows."""


def is_noticed(header: Header, name: str, value: object) -> bool:
    """Whether a further value of an entry is refused, or gives another configuration."""
    architecture = header.metadata["general.architecture"]
    changed = replace(header, metadata={**header.metadata, f"{architecture}.{name}": value})
    try:
        gguf_families.check_entries(changed)
    except HeaderError:
        return True
    if architecture in gguf_families.NEWER:
        return name in gguf_families.NEWER[architecture]
    return gguf_families.read_fields(changed) != gguf_families.read_fields(header)


def list_ignored(header: Header) -> set[str]:
    """The entries of which no value that matters is noticed."""
    values = (5, 1.75, True, False, "linear", [2, 1, 1, 0])
    names = {*KNOWN, "rope.scale_linear", "an_entry_of_tomorrow"}
    return {name for name in names if not any(is_noticed(header, name, value) for value in values)}


@pytest.mark.one_case
@every_architecture
def test_a_file_is_read_as_the_same_weights_in_safetensors_and_nothing_of_it_is_ignored(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(architecture)
    path = write_gguf(tmp_path / "tiny.gguf", architecture, model=model)
    assert differ(path, model) == 0
    header = gguf_header.read_header(path)
    without = {"nextn_predict_layers"} if architecture == "qwen35" else set()  # layers that the model does without
    assert list_ignored(header) <= {*gguf_families.WITHOUT_SCALING, *without}
    with monkeypatch.context() as patched:
        patched.setattr(gguf_families._Entries, "check_rest", lambda _: None)
        assert len(list_ignored(header)) > 50, "what is not read would be seen"
    tensors = list_tensors(architecture, model)
    further = {**tensors, "blk.0.attn_sinks.weight": np.ones(64, np.float32)}
    lacking = {name: values for name, values in tensors.items() if name != "blk.1.attn_norm.weight"}
    for given in (further, lacking):
        assert outcome(write_gguf(tmp_path / "other.gguf", architecture, model=model, tensors=given))


def test_absent_entries_mean_what_they_do_in_llama_cpp(tmp_path: Path) -> None:
    for architecture, name, field, value in (
        ("llama", "rope.freq_base", "rope_parameters", {"rope_type": "default", "rope_theta": 10000.0}),
        ("gemma2", "attention.sliding_window", "sliding_window", 4096),
        ("gemma2", "attn_logit_softcapping", "attn_logit_softcapping", 50.0),
        ("gemma3", "final_logit_softcapping", "final_logit_softcapping", None),
    ):
        path = write_gguf(tmp_path / "tiny.gguf", architecture, metadata={f"{architecture}.{name}": None})
        assert gguf_families.read_fields(gguf_header.read_header(path))[1][field] == value


FILE = "acme_models/tiny.gguf"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of packages with the distribution acme-models 1.2, whose module cannot be imported."""
    site = tmp_path / "site-packages"
    (site / "acme_models").mkdir(parents=True)
    (site / "acme_models" / "__init__.py").write_text("raise SystemExit('it was imported')")
    (site / FILE).write_bytes(b"GGUF")
    (site / "other.gguf").write_bytes(b"GGUF")
    (tmp_path / "outside.gguf").write_bytes(b"GGUF")
    (site / "acme_models" / "link.gguf").symlink_to(tmp_path / "outside.gguf")
    (site / "acme_models" / "folder.gguf").mkdir()
    listed = [FILE, "acme_models/link.gguf", "acme_models/folder.gguf", "acme_models/gone.gguf", "../outside.gguf"]
    (site / "acme_models-1.2.dist-info").mkdir()
    (site / "acme_models-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-models\nVersion: 1.2\n"
    )
    (site / "acme_models-1.2.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in listed))
    monkeypatch.syspath_prepend(site)
    return site


@pytest.mark.parametrize("name", ["acme-models", "acme_models", "Acme.Models", "acme-models==1.2"])
def test_a_listed_file_is_found_and_nothing_is_imported(name: str, site: Path) -> None:
    assert find_package_file(f"package:{name}/{FILE}") == site / FILE
    assert "acme_models" not in sys.modules


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ("acme-nothing/a.gguf", "which is not installed; install it: pip install --no-deps acme-nothing"),
        (f"acme-models==1.3/{FILE}", "than the installed 1.2; install it: pip install --no-deps acme-models==1.3"),
        (f"acme-models/{FILE}", "ends after 4 bytes"),
        ("acme-models/other.gguf", "is not a file of acme-models 1.2; check its name"),
        ("acme-models/../outside.gguf", "is not a file of acme-models 1.2"),
        ("acme-models/acme_models/link.gguf", "is missing, or not a regular file among the packages; install it: pip"),
        ("acme-models/acme_models/gone.gguf", "gone.gguf' is "),  # not listed by newer versions of importlib
        ("", "does not have the form package:DISTRIBUTION[==VERSION]/FILE"),
        ("acme-models==1.2 --pre/x.gguf", "does not have the form"),
    ],
)
@pytest.mark.usefixtures("site")
def test_all_else_is_refused_with_what_to_do_and_a_file_is_checked_like_any_other(identity: str, said: str) -> None:
    assert said in refusal(f"package:{identity}", check_inputs)


# --- headers: sound ones are read, all others are refused in one line ---

U32, STRING, ARRAY = 4, 8, 9
LLAMA = entry("general.architecture", STRING, text("llama"))
LARGE = 2**60


def named(kind: int, value: bytes, name: str | bytes = "x.y") -> bytes:
    """A file of one entry."""
    return raw_gguf([entry(name, kind, value)])


def of_tensors(*tensors: bytes) -> bytes:
    """A file of an architecture, and tensors."""
    return raw_gguf([LLAMA], tensors)


VOCABULARY = entry("tokenizer.ggml.tokens", ARRAY, array(STRING, 1, text("a")))
HTML = entry("general.architecture", STRING, text("<script>alert(1)</script>"))
HOSTILE: dict[str, tuple[bytes, str]] = {
    "another format": (raw_gguf(magic=b"GGML"), "does not begin with 'GGUF'"),
    "only the magic": (b"GGUF", "ends after 4 bytes, inside its version"),
    "the other byte order": (raw_gguf(version=3 << 24), "with its bytes in the order of another machine"),
    "2^60 tensors": (raw_gguf([LLAMA], counts=(LARGE, 1)), f"says that it has {LARGE:,} tensors"),
    "more entries than there are": (raw_gguf([LLAMA], counts=(0, 9)), "inside|is not printable|two"),
    "a name beyond the file": (raw_gguf([struct.pack("<Q", LARGE)]), "ends after .* inside the name"),
    "a value beyond the file": (named(STRING, struct.pack("<Q", 10**6)), "inside 'x.y'"),
    "a string of 2^60": (named(STRING, struct.pack("<Q", LARGE)), "ends after .* inside 'x.y'"),
    "an array of 2^60": (named(ARRAY, array(U32, LARGE)), "has arrays of more than 2,097,152"),
    "an array of arrays": (named(ARRAY, array(ARRAY, 1, array(U32, 1, b"\0" * 4))), "array of arrays"),
    "an unknown type": (named(99, b"\0" * 8), "has a metadata entry of type 99, 'x.y'"),
    "an entry twice": (raw_gguf([LLAMA, LLAMA]), "has two metadata entries named 'general.architecture'"),
    "control characters": (named(U32, b"\0" * 4, "a\x1b[2Jb\n"), r"whose name is not printable: 'a\\x1b\[2Jb\\n'"),
    "a value that is not text": (named(STRING, text(b"\xff")), "has 'x.y' that is not UTF-8"),
    "no alignment": (named(U32, b"\0" * 4, "general.alignment"), "alignment '0', which is not a power"),
    "no axes": (of_tensors(tensor("t", ())), "has a tensor with 0 axes, 't'"),
    "2^31 axes": (of_tensors(text("t") + struct.pack("<I", 2**31)), "with 2147483648 axes"),
    "half a block": (of_tensors(tensor("t", (33,), 8)), "which Q8_0 in blocks of 32 cannot store"),
    "an unknown type of tensor": (of_tensors(tensor("t", (4,), 4)), "has a tensor of type 4, 't'"),
    "a tensor beyond the file": (of_tensors(tensor("t", (17,))), "but its tensor 't' ends after"),
    "a place that overflows": (of_tensors(tensor("t", (4,), 0, 2**64 - 32)), "but its tensor 't' ends after"),
    "tensors that overlap": (of_tensors(tensor("a", (9,)), tensor("b", (4,), 0, 32)), "overlap, 'a' and 'b'"),
    "a tensor off its alignment": (of_tensors(tensor("t", (4,), 0, 8)), "at a multiple of 32 bytes, 't'"),
    "a tensor twice": (of_tensors(tensor("t"), tensor("t", offset=32)), "has two tensors named 't'"),
    "no tensors": (of_tensors(), "has no architecture or no tensors"),
    "no tokenizer": (of_tensors(tensor("t")), r"has no vocabulary \(tokenizer.ggml.tokens\)"),
    "frequencies that transformers ignores": (
        raw_gguf([LLAMA, VOCABULARY], [tensor("rope_freqs.weight")]),
        r"rescales its rotary positions \(rope_freqs.weight\), which transformers does not read from GGUF",
    ),
    "HTML as an architecture": (raw_gguf([HTML, VOCABULARY], [tensor("t")]), "has the architecture '<script>alert"),
}


@pytest.mark.parametrize("mistake", HOSTILE)
def test_hostile_files_are_refused_in_one_line_and_without_memory(mistake: str, tmp_path: Path) -> None:
    raw, said = HOSTILE[mistake]
    (tmp_path / "hostile.gguf").write_bytes(raw)
    refused, most = trace(lambda: outcome(tmp_path / "hostile.gguf"))
    assert refused is not None
    assert re.search(said, refused), refused
    assert most < 2**24  # of the file, at most the 64 MiB of a header would be read; here it has a few kilobytes


def test_a_header_that_claims_much_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(gguf_header, "HEADER_BYTES", 2**10)
    with pytest.raises(HeaderError, match="has a header of more than 0 MiB"):
        read_header(path)
    monkeypatch.undo()
    monkeypatch.setattr(gguf_header, "ELEMENTS", 300)
    with pytest.raises(HeaderError, match=r"has arrays of more than 300 elements: with 'tokenizer\.ggml\."):
        read_header(path)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    generator = random.Random(0)
    for length in [*(generator.randrange(len(whole)) for _ in range(40)), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(HeaderError, match=r"ends |does not begin with|more than the"):
            read_header(path)


def test_what_is_not_a_regular_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    for name in ("pipe.gguf", "folder.gguf"):
        assert "is not a regular file; give a .gguf file" in (outcome(tmp_path / name) or "")
    assert "cannot be read (No such file or directory); check its name" in (outcome(tmp_path / "none.gguf") or "")
    assert "cannot be read (its name is not one of a file)" in (outcome(Path("a\0.gguf")) or "")
    assert "cannot be read (File name too long)" in (outcome(tmp_path / f"{'a' * 300}.gguf") or "")
