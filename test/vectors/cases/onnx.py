"""ONNX Attention and RotaryEmbedding."""

import numpy as np

from .masks import added, keep, without_row
from .reference import attend, f64, merge, rotate
from .store import Random, case


def onnx(name, q, k, v, opset=23, dtype=np.float32, mask=None, past=None, lengths=None, wants=(), heads=None, **attributes):
    """An ONNX Attention case. `heads` (q, kv) packs Q, K and V to rank 3."""
    r = Random(name)
    cast = lambda x: x.astype(dtype)
    Q, K, V = cast(r(*q)), cast(r(*k)), cast(r(*v))
    inputs = {"Q": Q, "K": K, "V": V}
    if past is not None:
        inputs["past_key"] = cast(r(*K.shape[:2], past, K.shape[3]))
        inputs["past_value"] = cast(r(*V.shape[:2], past, V.shape[3]))
        K = np.concatenate([inputs["past_key"], K], 2)
        V = np.concatenate([inputs["past_value"], V], 2)
    if mask is not None:
        inputs["attn_mask"] = mask(r)
    if lengths is not None:
        inputs["nonpad_kv_seqlen"] = np.array(lengths, np.int64)
    (B, H, L, D), S = Q.shape, K.shape[2]

    first = np.zeros(B, int) + (past or 0) if lengths is None else np.array(lengths) - L
    position = first[:, None, None, None] + np.arange(L)[:, None]
    key = np.arange(S)
    allowed = np.ones((B, 1, L, S), bool)
    if attributes.get("is_causal"):
        allowed &= key <= position
    if attributes.get("left_window_size", -1) >= 0:
        allowed &= key >= position - attributes["left_window_size"]
    if attributes.get("right_window_size", -1) >= 0:
        allowed &= key <= position + attributes["right_window_size"]
    if lengths is not None:
        allowed &= key < np.array(lengths)[:, None, None, None]
    bias = None
    if mask is not None:
        m = inputs["attn_mask"]
        fill = np.full((*m.shape[:-1], S - m.shape[-1]), False if m.dtype == bool else -np.inf)
        m = np.concatenate([m, fill.astype(m.dtype)], -1)
        if m.dtype == bool:
            allowed = allowed & m
        else:
            bias = m
    found = attend(Q, K, V, allowed, bias, attributes.get("scale"), attributes.get("softcap", 0.0))

    outputs = {"Y": found["out"]}
    if "present" in wants:
        outputs |= {"present_key": K, "present_value": V}
    if "scores" in wants:
        stage = ("raw", "capped", "masked", "weights")[attributes.get("qk_matmul_output_mode", 0)]
        outputs["qk_matmul_output"] = found[stage]
    if heads:
        attributes |= {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
        inputs |= {name: merge(inputs[name]) for name in "QKV"}
        outputs["Y"] = merge(outputs["Y"])
    copies = [name for name in outputs if name.startswith("present")]
    outputs = {k: v if k in copies else v.astype(dtype) for k, v in outputs.items()}
    case("onnx", "Attention", name, attributes, inputs, outputs, opset, 2e-3 if dtype == np.float16 else 1e-5, copies)


def onnx_cases():
    onnx("plain", (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    onnx("gqa_rank3_scale", (2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6), heads=(6, 2), scale=0.25)
    onnx("causal_top_left", (1, 2, 5, 8), (1, 2, 9, 8), (1, 2, 9, 8), is_causal=1)
    onnx("causal_one_query", (1, 2, 1, 8), (1, 2, 4, 8), (1, 2, 4, 8), is_causal=1)
    onnx("past_gqa", (2, 4, 3, 8), (2, 2, 3, 8), (2, 2, 3, 10), past=4, wants=["present"], is_causal=1)
    onnx("past_rank3", (2, 4, 2, 5), (2, 2, 2, 5), (2, 2, 2, 7), past=3, wants=["present"], heads=(4, 2), is_causal=1)
    onnx("past_empty", (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), past=0, wants=["present"], is_causal=1)
    onnx("present_without_past", (1, 2, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4), wants=["present"])
    onnx("keep_rank1_short", (1, 2, 3, 8), (1, 2, 7, 8), (1, 2, 7, 8), mask=keep(5, of=0.8))
    onnx("keep_one_column", (1, 2, 3, 8), (1, 2, 7, 8), (1, 2, 7, 8), mask=lambda r: np.array([[True], [False], [True]]))
    onnx("keep_empty_row", (1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 8), mask=without_row((4, 6), 2), wants=["scores"], qk_matmul_output_mode=3)
    onnx("keep_rank4_batch", (3, 2, 4, 8), (3, 2, 6, 8), (3, 2, 6, 8), mask=lambda r: np.arange(6) < np.array([6, 1, 3])[:, None, None, None])
    onnx("bias_rank3_heads", (2, 4, 3, 8), (2, 2, 6, 8), (2, 2, 6, 8), mask=added(4, 3, 6, masked=0.2))
    onnx("bias_short_past", (1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), past=4, mask=added(1, 1, 3, 6), is_causal=1)
    onnx("f16", (1, 2, 5, 16), (1, 1, 9, 16), (1, 1, 9, 16), dtype=np.float16, mask=added(5, 9, dtype=np.float16), softmax_precision=1)
    onnx("huge_logits", (1, 2, 5, 64), (1, 2, 9, 64), (1, 2, 9, 64), scale=64.0)
    for mode in range(4):
        onnx(f"softcap_mode{mode}", (1, 4, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), past=2, mask=added(3, 5, masked=0.2), wants=["scores"],
             is_causal=1, softcap=0.5, scale=1.0, qk_matmul_output_mode=mode)
    onnx("lengths", (2, 2, 3, 8), (2, 2, 6, 8), (2, 2, 6, 8), opset=24, lengths=[4, 6])
    onnx("lengths_causal", (4, 2, 3, 8), (4, 2, 6, 8), (4, 2, 6, 8), opset=24, lengths=[6, 3, 2, 0], is_causal=1)
    onnx("window_both", (1, 2, 7, 8), (1, 2, 11, 8), (1, 2, 11, 8), opset=25, left_window_size=2, right_window_size=1)
    onnx("window_past", (1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), opset=25, past=6, is_causal=1, left_window_size=2)
    onnx("window_lengths", (2, 4, 2, 8), (2, 2, 9, 8), (2, 2, 9, 8), opset=25, lengths=[9, 5], left_window_size=1, right_window_size=0)

    def rotary(name, packed, positions, interleaved, dim, size=8, B=2, H=3, L=4):
        r = Random(name)
        x, angle = r(B, H, L, size), f64(r(*((20,) if positions else (B, L)), dim // 2, scale=4.0))
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        ids = (np.arange(B)[:, None] * 7 + np.arange(L)[::-1] * 2).astype(np.int64)
        y = rotate(x, cos[ids] if positions else cos, sin[ids] if positions else sin, interleaved)
        inputs = {"input": merge(x) if packed else x, "cos_cache": cos, "sin_cache": sin}
        inputs |= {"position_ids": ids} if positions else {}
        attributes = {"interleaved": int(interleaved)}
        attributes |= {"num_heads": H} if packed else {}
        attributes |= {"rotary_embedding_dim": dim} if dim < size else {}
        case("onnx", "RotaryEmbedding", name, attributes, inputs, {"output": merge(y) if packed else y}, 23)

    rotary("rotary_half", packed=False, positions=True, interleaved=False, dim=8)
    rotary("rotary_interleaved_rank3_partial", packed=True, positions=True, interleaved=True, dim=6)
    rotary("rotary_no_positions", packed=False, positions=False, interleaved=False, dim=4)
