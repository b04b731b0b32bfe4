"""Broken recipes: each gives one line that names file, line, key and remedy, exit status 2 and no traceback."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import RECIPE, TestWorkspace
from doit.doit_cmd import DoitMain

MODEL = '[model]\nsource = "torch"\nfactory = "recipes.tiny_net:build"\nweights = "random:0"\n'
INPUT = "[model.inputs.image]\nshape = [1, 3, 8, 8]\n"
BASE = f"schema = 1\n{MODEL}{INPUT}"
ONNX = 'schema = 1\n[model]\nsource = "onnx"\npath = "recipes/tiny.toml"\n' + INPUT
LANGUAGE = 'schema = 1\n[model]\nsource = "gguf"\npath = "recipes/tiny.toml"\n'
NO_ONEDNN = BASE + '[passes]\npreset = "O1"\n'
SYMBOLIC = BASE.replace("[1, 3,", '["b", 3,') + "[model.dims]\n"


@dataclass(frozen=True)
class Broken:
    """A recipe's text, and where and what its first message must say."""

    name: str
    text: str | bytes
    line: int
    key: str
    says: str


BROKEN = [
    Broken("empty", "", 1, "file", "says nothing"),
    Broken("only-comment", "# nothing\n", 1, "file", "says nothing"),
    Broken("no-schema", MODEL + INPUT, 1, "schema", "is missing"),
    Broken("future-schema", BASE.replace("schema = 1", "schema = 2"), 1, "schema", "not a choice"),
    Broken("schema-text", BASE.replace("schema = 1", 'schema = "1"'), 1, "schema", "not a choice"),
    Broken("no-model", "schema = 1\n", 1, "model", "is missing"),
    Broken("model-not-table", 'schema = 1\nmodel = "x"\n', 2, "model", "must be a table"),
    Broken("unknown-section", BASE + "[pases]\npreset = 'O2'\n", 8, "pases", "did you mean 'passes'"),
    Broken("unknown-key", BASE + "[passes]\npresett = 'O2'\n", 9, "passes.presett", "did you mean 'preset'"),
    Broken("unknown-source", BASE.replace('"torch"', '"keras"'), 3, "model.source", "not a choice"),
    Broken("wrong-type", BASE + "[profile]\nrepeat = 'many'\n", 9, "profile.repeat", "whole number"),
    Broken("float-for-int", BASE + "[profile]\nrepeat = 3.5\n", 9, "profile.repeat", "whole number"),
    Broken("bool-for-int", BASE + "[verify]\nsamples = true\n", 9, "verify.samples", "whole number"),
    Broken("too-few-samples", BASE + "[verify]\nsamples = 1\n", 9, "verify.samples", "greater than or equal to 2"),
    Broken("negative-repeat", BASE + "[profile]\nrepeat = -3\n", 9, "profile.repeat", "greater than or equal"),
    Broken("tolerance-nan", BASE + "[verify.tolerance]\nmax_abs = nan\n", 9, "verify.tolerance.max_abs", ""),
    Broken("tolerance-inf", BASE + "[verify.tolerance]\nmax_abs = inf\n", 9, "verify.tolerance.max_abs", "finite"),
    Broken("dataset-empty", BASE + '[verify]\ndataset = ""\n', 9, "verify.dataset", "at least 1"),
    Broken("records-folder", BASE + '[tune]\nrecords = "recipes"\n', 9, "tune.records", "is a folder"),
    Broken("tolerance-unknown", BASE + "[verify.tolerance]\ncosin = 1\n", 9, "verify.tolerance.cosin", "did you mean 'cosine'"),
    Broken("zero-size", BASE.replace("[1, 3, 8, 8]", "[1, 0, 8, 8]"), 7, "shape[1]", "at least 1"),
    Broken("negative-size", BASE.replace("[1, 3, 8, 8]", "[1, 3, -8, 8]"), 7, "shape[2]", "at least 1"),
    Broken("fraction-size", BASE.replace("[1, 3, 8, 8]", "[1, 3, 8.5, 8]"), 7, "shape[2]", "whole number"),
    Broken("huge-size", BASE.replace("[1, 3, 8, 8]", "[100000, 100000, 8, 8]"), 7, "shape", "too many"),
    Broken("symbol-without-bounds", BASE.replace("[1, 3,", '["batch", 3,'), 7, "shape[0]", "no bounds"),
    Broken("dim-unused", BASE + "[model.dims]\nb = { max = 8 }\n", 9, "model.dims.b", "no input has the dimension"),
    Broken("dim-reversed", SYMBOLIC + "b = { min = 9, max = 8 }\n", 9, "model.dims.b", "min 9 is above max 8"),
    Broken("dim-single", SYMBOLIC + "b = { min = 8, max = 8 }\n", 9, "model.dims.b", "write that number"),
    Broken("dim-unbounded", SYMBOLIC + "b = { min = 1 }\n", 9, "model.dims.b.max", "is missing"),
    Broken("dim-huge", SYMBOLIC + "b = { max = 1000000000 }\n", 7, "shape", "too many"),
    Broken("sweep-unknown", SYMBOLIC + "b = { max = 8 }\n[profile.shapes]\nc = [1]\n", 11, "profile.shapes.c", "known: b"),
    Broken("sweep-outside", SYMBOLIC + "b = { max = 8 }\n[profile.shapes]\nb = [9]\n", 11, "profile.shapes.b", "1..8"),
    Broken("shape-text", BASE.replace("[1, 3, 8, 8]", '"1x3"'), 7, "shape", "must be a list"),
    Broken("dtype", BASE + 'dtype = "float99"\n', 8, "model.inputs.image.dtype", "not a choice"),
    Broken("range-order", BASE + "range = [5, 1]\n", 8, "range", "lowest value comes first"),
    Broken("no-inputs", f"schema = 1\n{MODEL}", 2, "model.inputs", "is missing"),
    Broken("input-name", BASE.replace("inputs.image", 'inputs."my image"'), 6, "model.inputs", "malformed"),
    Broken("no-factory", BASE.replace('factory = "recipes.tiny_net:build"\n', ""), 2, "model.factory", "is missing"),
    Broken("factory-form", BASE.replace("tiny_net:build", "tiny_net.build"), 4, "model.factory", "malformed"),
    Broken("factory-for-onnx", ONNX.replace(INPUT, 'factory = "a:b"\n' + INPUT), 5, "model.factory", "does not go with"),
    Broken("onnx-without-path", 'schema = 1\n[model]\nsource = "onnx"\n' + INPUT, 2, "model.path", "needs one"),
    Broken("missing-file", ONNX.replace("recipes/tiny.toml", "no/such.onnx"), 4, "model.path", "there is no"),
    Broken("path-escape", ONNX.replace("recipes/tiny.toml", "../../etc/passwd"), 4, "model.path", "leaves the workspace"),
    Broken("path-absolute", ONNX.replace("recipes/tiny.toml", "/etc/passwd"), 4, "model.path", "leaves the workspace"),
    Broken("path-control", ONNX.replace("recipes/tiny.toml", "a\\u0000b"), 4, "model.path", "control characters"),
    Broken("sha256-short", ONNX.replace(INPUT, 'sha256 = "abc"\n' + INPUT), 5, "model.sha256", "malformed"),
    Broken("pypi-without-sha256", ONNX.replace("recipes/tiny.toml", "pypi:x==1#m.onnx"), 2, "model.sha256", "digest"),
    Broken("pypi-without-version", ONNX.replace("recipes/tiny.toml", "pypi:x#m.onnx"), 4, "model.path", "=="),
    Broken("hf-without-revision", ONNX.replace("recipes/tiny.toml", "hf:org/name"), 2, "model.revision", "commit"),
    Broken("revision-branch", ONNX.replace(INPUT, 'revision = "main"\n' + INPUT), 5, "model.revision", "malformed"),
    Broken("https-without-sha256", ONNX.replace("recipes/tiny.toml", "https://x.org/m.onnx"), 2, "model.sha256", "digest"),
    Broken("plain-http", ONNX.replace("recipes/tiny.toml", "http://x.org/m.onnx"), 4, "model.path", "https"),
    Broken("weights-form", BASE.replace("random:0", "random:x"), 5, "model.weights", "malformed"),
    Broken("weights-for-onnx", ONNX.replace(INPUT, 'weights = "random:1"\n' + INPUT), 5, "model.weights", "architecture"),
    Broken(
        "language-clients", LANGUAGE + "[profile]\nconcurrency = [2]\n", 6, "profile.concurrency", "profile.shapes.sequences"
    ),
    Broken("language-constants", LANGUAGE + "constants = { sr = 1 }\n", 5, "model.constants", "has its own inputs"),
    Broken("language-outputs", LANGUAGE + 'outputs = ["x"]\n', 5, "model.outputs", "has one output"),
    Broken(
        "language-class", LANGUAGE + 'auto_class = "AutoModelForMaskedLM"\n', 5, "model.auto_class", "no language model's class"
    ),
    Broken("language-dataset", LANGUAGE + '[verify]\ndataset = "a:b"\n', 6, "verify.dataset", "verify.language.text"),
    Broken(
        "language-int8",
        LANGUAGE + "[quantization]\nscheme = 'int8'\nsymmetric = false\n",
        7,
        "quantization.symmetric",
        "int8 is always symmetric",
    ),
    Broken(
        "language-loss",
        LANGUAGE + "[quantization]\nscheme = 'int8'\nmax_degradation = 0.1\n",
        7,
        "quantization.max_degradation",
        "not supported for language models yet",
    ),
    Broken(
        "language-gptq-int8",
        LANGUAGE + "[quantization]\nscheme = 'int8'\nmethod = 'gptq'\n",
        7,
        "quantization.method",
        "nothing to make up for",
    ),
    Broken(
        "language-method",
        LANGUAGE + "[quantization]\nscheme = 'int4'\nmethod = 'gtpq'\n",
        7,
        "quantization.method",
        "gptq",
    ),
    Broken(
        "language-calibration-unread",
        LANGUAGE + "[quantization]\nscheme = 'int4'\ncalibration = 'a:b'\n",
        7,
        "quantization.calibration",
        'set method = "gptq"',
    ),
    Broken(
        "language-calibration-missing",
        LANGUAGE + "[quantization]\nscheme = 'int4'\nmethod = 'gptq'\ncalibration = 'no.txt'\n",
        8,
        "quantization.calibration",
        "there is no 'no.txt'",
    ),
    Broken(
        "language-calibration-seeded",
        LANGUAGE.replace("gguf", "transformers")
        + "weights = 'random:0'\nkv_cache = {}\n[quantization]\nscheme = 'int4'\nmethod = 'gptq'\ncalibration = 'a:b'\n",
        10,
        "quantization.calibration",
        "seeded weights know no language",
    ),
    Broken(
        "language-cache-key", LANGUAGE + "[model.kv_cache]\ntokns = 5\n", 6, "model.kv_cache.tokns", "did you mean 'tokens'"
    ),
    Broken("language-inputs", LANGUAGE + INPUT, 5, "model.inputs", "has its own inputs"),
    Broken(
        "language-metric", BASE + "[verify.tolerance]\ngreedy = 1.0\n", 9, "verify.tolerance.greedy", "language models only"
    ),
    Broken("torchscript-untrusted", ONNX.replace('"onnx"', '"torchscript"'), 2, "model.trusted", "is a program"),
    Broken("trusted-onnx", ONNX.replace(INPUT, "trusted = true\n" + INPUT), 5, "model.trusted", "torchscript"),
    Broken("constant-and-input", BASE + "[model.constants]\nimage = 1\n", 9, "model.constants.image", "also an input"),
    Broken("unknown-pass", BASE + '[passes]\norder = ["FoldConstnat"]\n', 9, "passes.order[0]", "FoldConstant"),
    Broken("pass-without-name", BASE + "[passes]\norder = [{ level = 1 }]\n", 9, "passes.order[0].name", "is missing"),
    Broken("preset-and-order", BASE + '[passes]\npreset = "O1"\norder = []\n', 8, "passes", "exclude each other"),
    Broken("unknown-preset", BASE + '[passes]\npreset = "O9"\n', 9, "passes.preset", "not a choice"),
    Broken("unknown-arch", BASE + '[target]\narch = "saphirerapids"\n', 9, "target.arch", "sapphirerapids"),
    Broken("cuda", BASE + '[target]\nkind = "cuda"\narch = "sm_90"\n', 9, "target.kind", "not supported yet"),
    Broken("tf32", BASE + '[target]\nprecision = "tf32"\n', 9, "target.precision", "not supported yet"),
    Broken("bfloat16", NO_ONEDNN + '[target]\nprecision = "bfloat16"\n', 11, "target.precision", "pass OffloadOneDnn"),
    Broken("threads", BASE + "[target]\nthreads = -1\n", 9, "target.threads", "greater than or equal to 0"),
    Broken("quantization", BASE + '[quantization]\nscheme = "int4"\n', 9, "quantization.scheme", "int4 is not supported yet"),
    Broken("kernels", BASE + '[kernels]\nconv2d = "triton"\n', 9, "kernels.conv2d", "not supported yet"),
    Broken("onednn-attention", BASE + '[kernels]\nattention = "onednn"\n', 9, "kernels.attention", "not supported yet"),
    Broken("onednn-without-pass", NO_ONEDNN + '[kernels]\nmatmul = "onednn"\n', 11, "kernels.matmul", "pass OffloadOneDnn"),
    Broken("budget", BASE + '[tune]\nbudget = "soon"\n', 9, "tune.budget", "20m"),
    Broken("records-escape", BASE + '[tune]\nrecords = "../x.json"\n', 9, "tune.records", "leaves the workspace"),
    Broken("on-miss", BASE + '[tune]\non_miss = "guess"\n', 9, "tune.on_miss", "not a choice"),
    Broken("gate-metric", BASE + '[[gate]]\nmetric = "speed"\nmax = 1\n', 9, "gate[0].metric", "malformed"),
    Broken("gate-without-bound", BASE + '[[gate]]\nmetric = "verify.cosine"\n', 8, "gate[0]", "needs min, max"),
    Broken("second-gate", BASE + '[[gate]]\nmetric = "verify.cosine"\nmin = 0\n[[gate]]\nmetric = 1\n', 12, "gate[1]", ""),
    Broken("reference", BASE + '[verify]\nreference = "onnxruntime"\n', 9, "verify.reference", "ONNX models"),
    Broken("dataset-missing", BASE + '[verify]\ndataset = "no.npz"\n', 9, "verify.dataset", "there is no"),
    Broken("extends-text", 'extends = "base/x.toml"\n' + BASE, 1, "extends", "list of file names"),
    Broken("extends-missing", 'extends = ["base/none.toml"]\n' + BASE, 1, "extends", "there is no file"),
    Broken("extends-self", 'extends = ["broken.toml"]\n' + BASE, 1, "extends", "cycle"),
    Broken("extends-escape", 'extends = ["../../x.toml"]\n' + BASE, 1, "extends", "leaves the workspace"),
    Broken("syntax", BASE + "[verify\n", 8, "syntax", "correct the TOML"),
    Broken("duplicate-key", BASE + "[verify]\nseed = 1\nseed = 2\n", 10, "syntax", "correct the TOML"),
    Broken("not-utf8", BASE.encode() + b'description = "\xff"\n', 8, "file", "UTF-8"),
    Broken("binary", bytes(range(256)), 2, "file", "UTF-8"),
    Broken("ten-megabytes", "# " + "x" * 10_000_000, 1, "file", "too large"),
    Broken("deep", "schema = " + "[" * 5000 + "]" * 5000, 1, "syntax", ""),
    Broken("variant-name", BASE + '[variant."a b"]\n', 8, "variant", "malformed"),
]


@pytest.fixture
def run(workspace: TestWorkspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a command in this process; returns (status, stderr lines)."""

    def call(*arguments: str) -> tuple[int, list[str]]:
        monkeypatch.chdir(workspace.root)
        monkeypatch.setenv("MODELBUILD_CACHE", str(workspace.cache))
        monkeypatch.setattr("sys.argv", ["doit", *arguments])
        status = DoitMain().run(list(arguments))
        return status, capsys.readouterr().err.splitlines()

    return call


@pytest.mark.parametrize("broken", BROKEN, ids=lambda item: item.name)
def test_one_line_names_file_line_key_and_remedy(broken: Broken, workspace: TestWorkspace, run) -> None:
    path = workspace.root / "recipes" / "broken.toml"
    path.write_bytes(broken.text if isinstance(broken.text, bytes) else broken.text.encode())
    status, lines = run("build", "broken")
    assert status == 2
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"recipes/broken.toml:{broken.line}: "), lines
    _, key, text = lines[0].split(": ", 2)
    assert broken.key in key
    assert broken.says in text
    assert ";" in text  # what is wrong; what to do


def test_every_fault_of_a_recipe_is_told(workspace: TestWorkspace, run) -> None:
    workspace.write("recipes/broken.toml", BASE + "[verify]\nsamples = 0\nsead = 1\n[profile]\nrepeat = 0\n")
    status, lines = run("build", "broken")
    assert status == 2
    assert [line.split(": ")[1] for line in lines] == ["verify.samples", "verify.sead", "profile.repeat"]


@pytest.mark.parametrize("name", ["a=b", "a*b", "a:b", "a@b", "-a", ".a", "a b"])
def test_names_that_cannot_be_addressed(name: str, workspace: TestWorkspace, run) -> None:
    workspace.write(f"recipes/{name}.toml", RECIPE)
    status, lines = run("list")
    assert status == 0
    assert [line for line in lines if f"recipes/{name}.toml:1: name: " in line], lines
    assert run("build", "tiny", "--dry-run")[0] == 0


@pytest.mark.parametrize("name", ["a=b", "a*b", "a:b", "a@b", "@", "tiny@", "tiny@@x", "tiny@none", "../tiny", "Tiny"])
def test_unknown_names_on_the_command_line(name: str, workspace: TestWorkspace, run) -> None:
    status, lines = run("build", name)
    assert status == 2
    assert len(lines) == 1, lines
    assert ";" in lines[0]


def test_two_recipes_of_one_name(workspace: TestWorkspace, run) -> None:
    workspace.write("recipes/vision/tiny.toml", RECIPE)
    status, lines = run("build", "tiny")
    assert status == 2
    assert lines == ["recipes/tiny.toml:1: name: 'tiny' is also the name of recipes/vision/tiny.toml; rename one of them"]


def test_cycle_through_two_files(workspace: TestWorkspace, run) -> None:
    workspace.write("recipes/base/a.toml", 'extends = ["b.toml"]\n')
    workspace.write("recipes/base/b.toml", '\nextends = ["a.toml"]\n')
    workspace.write("recipes/broken.toml", 'extends = ["base/a.toml"]\n' + BASE)
    status, lines = run("build", "broken")
    assert status == 2
    assert lines[0].startswith("recipes/base/b.toml:2: extends: cycle ")


def test_fault_in_a_fragment_names_the_fragment(workspace: TestWorkspace, run) -> None:
    workspace.write("recipes/base/slow.toml", "\n[profile]\nrepeat = 0\n")
    workspace.write("recipes/broken.toml", 'extends = ["base/slow.toml"]\n' + BASE)
    status, lines = run("build", "broken")
    assert status == 2
    assert lines[0].startswith("recipes/base/slow.toml:3: profile.repeat: ")


def test_fault_in_a_variant_and_in_a_set(workspace: TestWorkspace, run) -> None:
    workspace.write("recipes/broken.toml", BASE + "[variant.fast.profile]\nrepeat = 0\n")
    assert run("build", "broken@fast")[1][0].startswith("recipes/broken.toml:9: profile.repeat: ")
    status, lines = run("build", "tiny", "--set", "profile.repeat=0")
    assert status == 2
    assert lines[0].startswith("--set profile.repeat=0: profile.repeat: ")


def test_links_out_of_the_workspace(workspace: TestWorkspace, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "model.onnx").write_bytes(b"x")
    (workspace.root / "link").symlink_to(outside)
    workspace.write("recipes/broken.toml", ONNX.replace("recipes/tiny.toml", "link/model.onnx"))
    status, lines = run("build", "broken")
    assert status == 2
    assert "leaves the workspace" in lines[0]
    monkeypatch.setenv("MODELBUILD_ROOTS", str(outside))
    assert run("build", "broken", "--dry-run")[0] == 0


def test_a_broken_recipe_blocks_no_other(workspace: TestWorkspace, run) -> None:
    workspace.write("recipes/broken.toml", "schema = ")
    assert run("build", "tiny", "--dry-run") == (0, [])
    status, lines = run("build", "tiny", "broken", "--dry-run")
    assert status == 2
    assert len(lines) == 1


@pytest.mark.parametrize("text", ["", "schema = 9\n", "schema = 1\ndefualt = []\n", "schema = 1\ndefault = 3\n", "schema =",
                                  'schema = 1\nartifacts = "../x"\n', 'schema = 1\n[cache]\nmax_size = "big"\n'])  # fmt: skip
def test_broken_workspace_file(text: str, workspace: TestWorkspace, run) -> None:
    workspace.write("modelbuild.toml", text)
    status, lines = run("build", "tiny")
    assert status == 2
    assert len(lines) == 1, lines
    assert lines[0].startswith("modelbuild.toml:")


def test_no_workspace(workspace: TestWorkspace, run) -> None:
    (workspace.root / "modelbuild.toml").unlink()
    status, lines = run("build", "tiny")
    assert status == 2
    assert "doit init" in lines[0]
