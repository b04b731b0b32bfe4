"""Who computes a product on a GPU: the recipe, a record, or the default, and what a record may not say."""

from __future__ import annotations

from typing import Any

import pytest

from pydoit.errors import UserError
from pydoit.kernels.triton.choice import Choices, Product
from pydoit.kernels.triton.tile import MORE, ROW_CLASSES, Tile, default_tiles

PRODUCT = Product(n=4096, k=14336, gated=False, dtype="bfloat16")
TILE = {"rows": 16, "columns": 64, "depth": 128, "warps": 4, "stages": 3}


@pytest.mark.parametrize(
    ("wanted", "recorded", "one_row", "more_rows"),
    [
        ("auto", None, "tvm", "triton"),
        ("auto", {"provider": "triton", **TILE}, "triton", "triton"),
        ("auto", {"provider": "tvm"}, "tvm", "triton"),
        ("tvm", {"provider": "triton", **TILE}, "tvm", "tvm"),
        ("triton", None, "triton", "triton"),
    ],
)
def test_provider(wanted: Any, recorded: dict[str, Any] | None, one_row: str, more_rows: str) -> None:
    choices = Choices("sm_90", wanted, {} if recorded is None else {PRODUCT.key(1): recorded})
    assert choices.provider(PRODUCT, 1) == one_row
    assert choices.provider(PRODUCT, "sequences") == more_rows


def test_a_record_gives_the_tile_of_its_class_alone() -> None:
    found = Choices("sm_90", "auto", {PRODUCT.key(64): {"provider": "triton", **TILE}}).tiles(PRODUCT)
    wanted = list(default_tiles("sm_90", PRODUCT.n, gated=False))
    wanted[ROW_CLASSES.index(64)] = Tile(**TILE, most=64)
    assert list(found) == wanted


def test_a_record_is_for_one_product_and_type() -> None:
    others = [
        Product(4096, 14336, True, "bfloat16"),
        Product(4096, 14336, False, "float16"),
        Product(4096, 4096, False, "bfloat16"),
    ]
    keys = {product.key(most) for product in (PRODUCT, *others) for most in ROW_CLASSES}
    assert len(keys) == 4 * len(ROW_CLASSES)
    assert PRODUCT.task(MORE) == "matmul n4096 k14336 bf16 more rows"


@pytest.mark.parametrize("wrong", [{"rows": 24}, {"depth": 8}, {"columns": "64"}, {"warps": 3}, {"stages": 0}, {"lanes": 4}])
def test_a_tile_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    choices = Choices("sm_90", "auto", {PRODUCT.key(16): {"provider": "triton", **TILE, **wrong}})
    with pytest.raises(UserError, match=r'tuning record "matmul n4096 k14336 bf16 rows<=16": .*measure again'):
        choices.tiles(PRODUCT)
