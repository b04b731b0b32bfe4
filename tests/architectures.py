"""Forty transformers architectures as small configs with odd sizes, and how each is checked against eager PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from chain import results, run_chain

from pydoit import importers
from pydoit.importers.spec import ModelSpec
from pydoit.random_tensors import random_sample

Inputs = Mapping[str, tuple[tuple[int, ...], str, tuple[float, float] | None]]


@dataclass(frozen=True)
class Architecture:
    """A model type of transformers with a small config."""

    model_type: str
    auto_class: str
    inputs: Inputs
    config: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None
    factory: str | None = None


def text(length: int = 13, vocabulary: int = 97, **more: tuple[tuple[int, ...], str, tuple[float, float] | None]) -> Inputs:
    mask: tuple[tuple[int, ...], str, tuple[float, float]] = ((2, length), "int64", (1, 1))
    return {"input_ids": ((2, length), "int64", (2, vocabulary - 1)), "attention_mask": mask, **more}


def tokens(length: int = 13, vocabulary: int = 97) -> Inputs:
    return {"input_ids": ((2, length), "int64", (2, vocabulary - 1))}


def picture(height: int, width: int, batch: int = 1) -> Inputs:
    return {"pixel_values": ((batch, 3, height, width), "float32", None)}


def _plain(backbone: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in backbone.items() if key not in ("model_type", "out_features")}


ENCODER = {"vocab_size": 97, "hidden_size": 39, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 71}
DECODER = {**ENCODER, "hidden_size": 42, "num_key_value_heads": 1, "head_dim": 14, "num_attention_heads": 3,
           "max_position_embeddings": 64, "pad_token_id": 0}  # fmt: skip
GPT = {"vocab_size": 97, "n_embd": 39, "n_layer": 2, "n_head": 3, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 1}
EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2}
DEEPSEEK = {
    "vocab_size": 97, "hidden_size": 42, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3,
    "intermediate_size": 71, "moe_intermediate_size": 19, "n_routed_experts": 6, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "kv_lora_rank": 11, "q_lora_rank": 13,
    "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 9, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
SEQUENCE = {
    "vocab_size": 97, "d_model": 39, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 71, "decoder_ffn_dim": 53, "max_position_embeddings": 64,
}  # fmt: skip
VISION = {"hidden_size": 39, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 71, "patch_size": 5}
SPEECH = {
    "vocab_size": 37, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 71,
    "conv_dim": [17, 17, 17], "conv_stride": [5, 3, 2], "conv_kernel": [10, 5, 3], "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 15, "num_conv_pos_embedding_groups": 3,
}  # fmt: skip
RESNET = {
    "model_type": "resnet", "embedding_size": 11, "hidden_sizes": [12, 20, 28, 36], "depths": [1, 1, 2, 1],
    "layer_type": "bottleneck", "out_features": ["stage4"],
}  # fmt: skip
SWIN = {
    "model_type": "swin", "image_size": 64, "embed_dim": 12, "depths": [2, 2, 2, 2], "num_heads": [1, 2, 3, 3],
    "window_size": 3, "out_features": ["stage1", "stage2", "stage3", "stage4"],
}  # fmt: skip
DETR = {"num_queries": 7, "num_labels": 5, "d_model": 36, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 41, "decoder_ffn_dim": 53}  # fmt: skip
TEXT_TOWER = {**ENCODER, "hidden_size": 33, "max_position_embeddings": 32, "projection_dim": 21, "bos_token_id": 1,
              "eos_token_id": 96, "pad_token_id": 0}  # fmt: skip
VISION_TOWER = {**VISION, "image_size": 35, "projection_dim": 21}

# fmt: off
ARCHITECTURES: dict[str, Architecture] = {
    # encoders
    "bert": Architecture("bert", "AutoModel", text(), ENCODER),
    "distilbert": Architecture(
        "distilbert", "AutoModelForMaskedLM", text(), {"vocab_size": 97, "dim": 39, "n_layers": 2, "n_heads": 3, "hidden_dim": 71}
    ),
    "albert": Architecture("albert", "AutoModelForMaskedLM", text(), {**ENCODER, "embedding_size": 17}),
    "deberta-v2": Architecture(
        "deberta-v2", "AutoModel", text(), {**ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 8, "share_att_key": True}
    ),
    "modernbert": Architecture(
        "modernbert", "AutoModelForMaskedLM", text(), {**ENCODER, "hidden_size": 42, "num_hidden_layers": 4, "local_attention": 6,
        "pad_token_id": 0, "max_position_embeddings": 64}
    ),
    # decoders
    "llama": Architecture("llama", "AutoModelForCausalLM", text(), DECODER),
    "qwen2": Architecture("qwen2", "AutoModelForCausalLM", text(), DECODER),
    "qwen3": Architecture("qwen3", "AutoModelForCausalLM", text(), DECODER),
    "mistral": Architecture("mistral", "AutoModelForCausalLM", text(), {**DECODER, "sliding_window": 5}),
    "gemma2": Architecture("gemma2", "AutoModelForCausalLM", text(), {**DECODER, "sliding_window": 5}),
    "gemma3": Architecture("gemma3_text", "AutoModelForCausalLM", text(), {**DECODER, "sliding_window": 5, "num_hidden_layers": 6}),
    "gpt2": Architecture("gpt2", "AutoModelForCausalLM", text(), GPT),
    "gpt-neox": Architecture("gpt_neox", "AutoModelForCausalLM", text(), {**ENCODER, "hidden_size": 42}),
    "phi3": Architecture("phi3", "AutoModelForCausalLM", text(), DECODER),
    "bloom": Architecture("bloom", "AutoModelForCausalLM", text(), {"vocab_size": 97, "hidden_size": 39, "n_layer": 2, "n_head": 3}),
    "mixtral": Architecture("mixtral", "AutoModelForCausalLM", text(), {**DECODER, **EXPERTS}),
    "deepseek-v3": Architecture("deepseek_v3", "AutoModelForCausalLM", text(), DEEPSEEK),
    "mamba": Architecture(
        "mamba", "AutoModelForCausalLM", tokens(), {"vocab_size": 97, "hidden_size": 21, "num_hidden_layers": 2, "state_size": 5}
    ),
    # encoder-decoders
    "t5": Architecture(
        "t5", "AutoModelForSeq2SeqLM", text(decoder_input_ids=((2, 7), "int64", (2, 96))),
        {"vocab_size": 97, "d_model": 39, "d_kv": 11, "d_ff": 71, "num_layers": 2, "num_heads": 3,
         "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    ),
    "bart": Architecture("bart", "AutoModelForSeq2SeqLM", text(decoder_input_ids=((2, 7), "int64", (2, 96))), SEQUENCE),
    "whisper": Architecture(
        "whisper", "AutoModelForSpeechSeq2Seq",
        {"input_features": ((1, 17, 46), "float32", None), "decoder_input_ids": ((1, 7), "int64", (2, 96))},
        {**SEQUENCE, "d_model": 42, "num_mel_bins": 17, "max_source_positions": 23, "max_target_positions": 16,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1},
    ),
    # vision
    "vit": Architecture("vit", "AutoModelForImageClassification", picture(35, 35, 2), {**VISION, "image_size": 35}),
    "swin": Architecture("swin", "AutoModelForImageClassification", picture(50, 54), {**_plain(SWIN), "depths": [2, 2], "num_heads": [2, 3]}),
    "convnext": Architecture("convnext", "AutoModelForImageClassification", picture(67, 45),
                             {"hidden_sizes": [9, 14, 21, 27], "depths": [1, 2, 2, 1]}),
    "resnet": Architecture("resnet", "AutoModelForImageClassification", picture(67, 45), _plain(RESNET)),
    "mobilenet-v2": Architecture("mobilenet_v2", "AutoModelForImageClassification", picture(67, 45), {"depth_multiplier": 0.35}),
    "efficientnet": Architecture("efficientnet", "AutoModelForImageClassification", picture(67, 45),
                                 {"width_coefficient": 0.3, "depth_coefficient": 0.5, "hidden_dim": 384, "image_size": 67}),
    "dinov2": Architecture("dinov2", "AutoModel", picture(45, 30), {**VISION, "image_size": 35, "mlp_ratio": 2}),
    # audio
    "wav2vec2": Architecture("wav2vec2", "AutoModelForCTC", {"input_values": ((1, 1601), "float32", None)}, SPEECH),
    "hubert": Architecture("hubert", "AutoModel", {"input_values": ((1, 1601), "float32", None)}, SPEECH),
    "ast": Architecture(
        "audio-spectrogram-transformer", "AutoModelForAudioClassification", {"input_values": ((1, 43, 27), "float32", None)},
        {**VISION, "max_length": 43, "num_mel_bins": 27, "frequency_stride": 4, "time_stride": 4},
    ),
    # detection
    "detr": Architecture("detr", "AutoModelForObjectDetection", picture(67, 99), {**DETR, "backbone_config": RESNET}),
    "yolos": Architecture("yolos", "AutoModelForObjectDetection", picture(35, 45), {**VISION, "image_size": [35, 45], "num_labels": 5,
                          "num_detection_tokens": 7}),
    "rt-detr": Architecture(
        "rt_detr", "AutoModelForObjectDetection", picture(96, 160),
        {**DETR, "encoder_in_channels": [20, 28, 36], "encoder_hidden_dim": 36, "decoder_in_channels": [36, 36, 36],
         "eval_size": None, "num_queries": 9, "encoder_layers": 1,
         "backbone_config": {**RESNET, "model_type": "rt_detr_resnet", "out_features": ["stage2", "stage3", "stage4"]}},
        ("logits", "pred_boxes"),
    ),
    # segmentation
    "segformer": Architecture(
        "segformer", "AutoModelForSemanticSegmentation", picture(67, 45),
        {"hidden_sizes": [9, 14, 21, 27], "depths": [1, 2, 1, 1], "num_attention_heads": [1, 2, 3, 3], "decoder_hidden_size": 23,
         "num_labels": 5},
    ),
    "mask2former": Architecture(
        "mask2former", "AutoModelForUniversalSegmentation", picture(64, 96),
        {"feature_size": 32, "mask_feature_size": 32, "hidden_dim": 32, "encoder_feedforward_dim": 41, "encoder_layers": 2,
         "decoder_layers": 3, "num_attention_heads": 2, "dim_feedforward": 53, "num_queries": 7, "num_labels": 5,
         "backbone_config": SWIN},
        ("class_queries_logits", "masks_queries_logits"),
    ),
    # multimodal
    "clip": Architecture(
        "clip", "AutoModel", {**text(11), **picture(35, 35)},
        {"text_config": TEXT_TOWER, "vision_config": VISION_TOWER, "projection_dim": 21}, ("logits_per_image", "text_embeds"),
    ),
    "siglip": Architecture(
        "siglip", "AutoModel", {**tokens(11), **picture(35, 35)},
        {"text_config": {**TEXT_TOWER, "hidden_size": 39}, "vision_config": VISION_TOWER}, ("logits_per_image", "image_embeds"),
    ),
    "blip": Architecture(
        "blip", "AutoModelForImageTextToText", {**picture(35, 35, 2), **text(11)},
        {"text_config": {**TEXT_TOWER, "encoder_hidden_size": 39, "sep_token_id": 3}, "vision_config": VISION_TOWER,
         "projection_dim": 21, "image_text_hidden_size": 17},
        ("logits",),
    ),
    "llava": Architecture(
        "llava", "AutoModelForImageTextToText", {**picture(15, 15), "input_ids": ((1, 11), "int64", (2, 96))},
        {"text_config": {"model_type": "llama", **DECODER}, "vision_config": {"model_type": "clip_vision_model", **VISION_TOWER,
         "image_size": 15}, "image_token_index": 1, "image_seq_length": 9, "vision_feature_layer": -1},
        factory="architectures:prompted_llava",
    ),
}
# fmt: on


class PromptedLlava(torch.nn.Module):
    """LLaVA with its prompt around the image, as an application lays it out: a token, nine place holders, the text."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> torch.Tensor:
        start = input_ids.new_tensor([[2, *[1] * 9]])
        ids = torch.cat([start, input_ids], 1)
        return self.model(input_ids=ids, pixel_values=pixel_values, use_cache=False).logits


def prompted_llava(folder: Path) -> torch.nn.Module:
    """The factory of the architecture `llava`."""
    found = transformers.AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager")
    return PromptedLlava(found)


def model_of(name: str) -> dict[str, Any]:
    """The architecture as a recipe's model."""
    found = ARCHITECTURES[name]
    inputs = {key: {"shape": list(s), "dtype": d, "range": r} for key, (s, d, r) in found.inputs.items()}
    if found.factory is not None:
        return {"source": "torch", "factory": found.factory, "inputs": inputs}
    return {"source": "transformers", "auto_class": found.auto_class, "inputs": inputs, "outputs": found.outputs}


def save(name: str, folder: Path) -> int:
    """Write config.json and seeded weights of unit gain into `folder`; returns the number of parameters."""
    found = ARCHITECTURES[name]
    config = transformers.AutoConfig.for_model(found.model_type, **found.config)
    torch.manual_seed(3)
    model = getattr(transformers, found.auto_class).from_config(config)
    embeddings = {id(part.weight) for part in model.modules() if isinstance(part, torch.nn.Embedding)}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            else:
                fan_in = 1 if id(parameter) in embeddings else parameter[0].numel()
                parameter.normal_(0, fan_in**-0.5)
        for key, buffer in model.named_buffers():
            if key.endswith("running_mean"):
                buffer.normal_(0, 0.3)
            elif key.endswith("running_var"):
                buffer.uniform_(0.5, 2)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def samples(name: str, count: int = 2) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Seeded inputs; attention masks hide some tokens."""
    spec = ModelSpec.model_validate(model_of(name))
    drawn = [random_sample(spec.inputs, 5, index) for index in range(count)]
    for sample in drawn:
        if "attention_mask" in sample and name not in ("clip", "blip"):
            sample["attention_mask"][1, -4:] = 0
    return drawn


def check(name: str, folder: Path) -> dict[str, float]:
    """Run the whole chain; returns parameters and the largest error over the output's standard deviation."""
    (folder / "fetch/model").mkdir(parents=True)
    parameters = save(name, folder / "fetch/model")
    model = model_of(name)
    out = run_chain(model, folder)
    reference = importers.reference(ModelSpec.model_validate(model), folder / "fetch/model")
    worst = 0.0
    for sample in samples(name):
        expected = reference(sample)
        found = results(out, **sample)
        assert list(found) == list(expected)
        for key, wanted in expected.items():
            assert found[key].shape == wanted.shape
            assert np.isfinite(wanted).all()
            error = np.abs(found[key].astype("float64") - wanted.astype("float64")).max()
            worst = max(worst, float(error / (wanted.astype("float64").std() or 1.0)))
    return {"parameters": parameters, "error": worst}
