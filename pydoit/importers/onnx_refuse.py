"""Says, all at once, which operators of a model cannot be imported: names, counts, nodes, and what to try."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import onnx

from pydoit.importers import onnx_ops
from pydoit.importers.import_report import Unsupported
from pydoit.importers.onnx_evaluate import RANDOM

SHOWN_NODES = 3
_DIRECT = frozenset({"If", "Constant"})
"""Operators that TVM's importer treats outside its table."""
_CONTRIBUTED = frozenset(
    {"AllClassNMS", "Attention", "BiasGelu", "EmbedLayerNormalization", "FastGelu", "Gelu", "SkipLayerNormalization"}
)
"""Operators of com.microsoft that TVM converts."""
_MACHINE_LEARNING = frozenset({"ArrayFeatureExtractor", "Binarizer"})
_DATA_DEPENDENT = frozenset({"NonMaxSuppression", "NonZero", "Unique"})
_TRAINING = frozenset({"Adagrad", "Adam", "Gradient", "GraphCall", "Momentum"})
_REMEDIES = {
    "random": "its result is random: replace it by an input",
    "training": "it is for training: export the model for inference",
    "data": "its result's size depends on the data: cut the model before it, or bind its inputs to constants",
    "loop": "its trip count is not known at import: bind the inputs that it depends on to constants",
    "image": "decode images before the model",
    "other": "export the model without it",
}


def unsupported(model: onnx.ModelProto) -> list[Unsupported]:
    """Every operator without a converter."""
    known = _known()
    nodes: dict[str, list[str]] = defaultdict(list)
    for node in _all_nodes(model.graph.node):
        name = _qualified(node)
        if name not in known:
            nodes[name].append(node.name or (node.output[0] if node.output else "?"))
    return [Unsupported(name, len(where), _some(where), _remedy(name)) for name, where in sorted(nodes.items())]


def _known() -> set[str]:
    from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

    standard = {*_get_convert_map(), *onnx_ops.converters(), *_DIRECT} - _CONTRIBUTED - _DATA_DEPENDENT - RANDOM
    machine_learning = {f"ai.onnx.ml.{name}" for name in _MACHINE_LEARNING}
    return standard | {"Dropout", "Gelu"} | {f"com.microsoft.{name}" for name in _CONTRIBUTED} | machine_learning


def _qualified(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


def _some(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_NODES]) + (", ..." if len(names) > SHOWN_NODES else "")


def _remedy(name: str) -> str:
    short = name.rpartition(".")[2]
    for kind, members in (("random", RANDOM), ("training", _TRAINING), ("data", _DATA_DEPENDENT)):
        if short in members:
            return _REMEDIES[kind]
    return _REMEDIES["loop" if short in ("Loop", "Scan") else "image" if short == "ImageDecoder" else "other"]


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g.node)
