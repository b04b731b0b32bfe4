"""Seeded weights: scale by fan-in, norms neutral, batch norm calibrated to its input."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from pydoit.importers import random_weights


def test_scales_follow_fan_in() -> None:
    model = nn.Sequential(nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128), nn.Linear(512, 256), nn.Embedding(1000, 64))
    random_weights.fill(model, 0)
    state = {name: value.double() for name, value in model.state_dict().items()}
    # 73,728 samples and more: the deviation's relative standard error is below 0.3%
    assert abs(float(state["0.weight"].std()) * (64 * 9 / 2) ** 0.5 - 1) < 0.02
    assert abs(float(state["2.weight"].std()) * (512 / 2) ** 0.5 - 1) < 0.02
    assert abs(float(state["3.weight"].std()) - 1) < 0.02
    assert float(state["0.bias"].abs().max()) == 0
    assert float(state["1.weight"].min()) == float(state["1.running_var"].max()) == 1
    assert float(state["1.bias"].abs().max()) == float(state["1.running_mean"].abs().max()) == 0


def test_calibrated_layers_normalize_and_the_model_stays_float32() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4)).eval()
    random_weights.fill(model, 0)
    generator = np.random.default_rng(0)
    batches = [{"input": generator.normal(3, 2, (1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    random_weights.calibrate_batch_norm(model, batches)
    assert all(value.dtype == torch.float32 for value in model.state_dict().values() if value.is_floating_point())
    with torch.no_grad():
        outputs = model(torch.from_numpy(np.concatenate([batch["input"] for batch in batches])))
    # the statistics are rounded to 10 bits: errors of up to 2**-11 of mean and variance
    assert float(outputs.mean((0, 2, 3)).abs().max()) < 5e-3
    assert float((outputs.var((0, 2, 3), unbiased=False) - 1).abs().max()) < 5e-3


def test_statistics_hold_ten_bits() -> None:
    model = nn.Sequential(nn.BatchNorm1d(5)).eval()
    random_weights.calibrate_batch_norm(model, [{"input": np.random.default_rng(1).normal(size=(9, 5)).astype(np.float32)}])
    mantissa, _ = model[0].running_var.double().frexp()
    assert torch.equal(mantissa * 1024, (mantissa * 1024).round())
