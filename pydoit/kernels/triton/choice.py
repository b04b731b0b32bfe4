"""Who computes a product with a weight matrix on a GPU, in which tiles: by the recipe, by measured records, by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydoit.errors import UserError
from pydoit.kernels.triton.launch import entries_of
from pydoit.kernels.triton.tile import MORE, ROW_CLASSES, Tile, default_tiles
from pydoit.keys import digest_of

Provider = Literal["tvm", "triton"]
_TYPES = {"bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True)
class Product:
    """x[rows, k] W^T, or silu(x G^T) * (x U^T); what it is finished with does not change the choice."""

    n: int
    """Columns of the result."""
    k: int
    """Columns of the weight."""
    gated: bool
    """Whether the weight holds G above U."""
    dtype: str
    """Element type of x and the weight."""

    def task(self, most: int) -> str:
        """Readable name of the product with up to `most` rows (a row class)."""
        rows = "more rows" if most == MORE else f"rows<={most}"
        return f"{'gated ' if self.gated else ''}matmul n{self.n} k{self.k} {_TYPES.get(self.dtype, self.dtype)} {rows}"

    def key(self, most: int) -> str:
        """Key of its tuning record for a row class."""
        return digest_of({"operator": "matmul", **asdict(self), "rows": most})


@dataclass(frozen=True)
class Task:
    """A product with a class of rows, which a tuning record may be for."""

    name: str
    """Readable name."""
    key: str
    """Key of its record."""


def products_of(module: Any) -> list[Task]:
    """What tuning records may be for in a module for GPUs."""
    options = [entry["options"] for entry in entries_of(module).values() if entry["operator"] == "matmul"]
    products = dict.fromkeys(Product(item["n"], item["k"], item["gated"], item["dtype"]) for item in options)
    return [Task(product.task(most), product.key(most)) for product in products for most in ROW_CLASSES]


@dataclass(frozen=True)
class Choices:
    """Answers for the products of one model."""

    arch: str
    """Architecture of the target, `sm_90`."""
    wanted: Literal["auto", "tvm", "triton"] = "auto"
    """What the recipe says."""
    decisions: Mapping[str, Mapping[str, Any]] | None = None
    """Key of a tuning record -> {"provider": ...} and the fields of a tile, where Triton computes it."""

    def provider(self, product: Product, rows: Any) -> Provider:
        """Who computes the product: `rows` is 1, or a variable for any number of them.

        By default TVM's GEMV, which reads one row's weights at the memory's speed, and Triton on tensor cores for more.
        """
        if self.wanted != "auto":
            return self.wanted
        if rows != 1:
            return "triton"
        return "triton" if self._decision(product, 1).get("provider") == "triton" else "tvm"

    def tiles(self, product: Product) -> tuple[Tile, ...]:
        """Triton's tile for each class of rows, the fewest rows first."""
        chosen = []
        for most, default in zip(ROW_CLASSES, default_tiles(self.arch, product.n, gated=product.gated), strict=True):
            decision = {key: value for key, value in self._decision(product, most).items() if key != "provider"}
            chosen.append(_tile(product.task(most), decision, most) if decision else default)
        return tuple(chosen)

    def _decision(self, product: Product, most: int) -> Mapping[str, Any]:
        return (self.decisions or {}).get(product.key(most), {})


def _tile(task: str, decision: Mapping[str, Any], most: int) -> Tile:
    """The tile of a record; raises UserError for one that cannot be."""
    try:
        return Tile(**decision, most=most or None)
    except (TypeError, ValueError) as error:
        raise UserError(f'tuning record "{task}": {error}; restore it or measure again') from error
