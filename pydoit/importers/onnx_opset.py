"""Brings old ONNX files to one operator set, so that later steps meet one form of each operator."""

from __future__ import annotations

import logging

import onnx
import onnx.version_converter

OPSET = 18
"""Older files are converted to this version; newer ones stay, since ONNX converts downwards only in part."""


def upgrade(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model at OPSET where it is older and ONNX's converter can; else the model as it is."""
    versions = {item.domain: item.version for item in model.opset_import}
    if versions.get("", versions.get("ai.onnx", OPSET)) >= OPSET:
        return model
    try:
        converted = onnx.version_converter.convert_version(model, OPSET)
        onnx.checker.check_model(converted)
        onnx.shape_inference.infer_shapes(converted, check_type=True, strict_mode=True)
    except Exception:  # the converter raises what it happens to meet; the old form is converted as it is
        logging.getLogger(__name__).info("the operator set stays at %s", versions, exc_info=True)
        return model
    return converted
