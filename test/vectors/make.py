"""Makes this folder: index.json and one safetensors file a case, from NumPy in float64.

Run `python3 make.py` here; it needs NumPy and nothing else, and writes the same bytes every time. Inputs come from the
raw 64-bit stream of PCG64 (which NumPy keeps stable, unlike the distributions on top of it), seeded with the CRC-32 of
the case's name, so that no case depends on another. Expected values are rounded (float64 to 12 decimals), so that the
last bits of the exp and tanh of one machine do not show.
"""

import hashlib
import json
import struct
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DTYPES = {"float16": "F16", "float32": "F32", "float64": "F64", "bool": "BOOL", "int64": "I64"}
CASES = []


# ---------------------------------------------------------------------------------------------------------------- files


def container(tensors, metadata=None):
    """The bytes of a safetensors file: header length, JSON, data, tensors in order of name."""
    header = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name in sorted(tensors):
        bytes_ = np.ascontiguousarray(tensors[name]).tobytes()
        header[name] = {
            "dtype": DTYPES[str(tensors[name].dtype)],
            "shape": list(tensors[name].shape),
            "data_offsets": [len(data), len(data) + len(bytes_)],
        }
        data += bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write(entry, content):
    entry["file"] = f"{entry['set']}/{entry['name']}.safetensors"
    entry["sha256"] = hashlib.sha256(content).hexdigest()
    (HERE / entry["set"]).mkdir(exist_ok=True)
    (HERE / entry["file"]).write_bytes(content)
    CASES.append(entry)


def case(set_, op, name, attributes, inputs, outputs, opset=None, tolerance=1e-5, copies=(), notes=None):
    """Adds a case. `copies` are outputs that must be the input's own bits."""
    rounded = {k: np.round(v, 12) + 0.0 if v.dtype == np.float64 else v for k, v in outputs.items()}
    bounds = {"default": {"atol": tolerance, "rtol": tolerance}}
    bounds |= {name: {"atol": 0.0, "rtol": 0.0} for name in copies}
    kind = lambda tensors: {k: {"dtype": DTYPES[str(v.dtype)], "shape": list(v.shape)} for k, v in tensors.items()}
    entry = {"name": name, "set": set_, "op": op, "attributes": attributes, "tolerance": bounds}
    entry |= {"inputs": kind(inputs), "outputs": kind(rounded)}
    if opset:
        entry["opset"] = opset
    if notes:
        entry["notes"] = notes
    write(entry, container(inputs | rounded))


class Random:
    """Exact float32 values from raw bits: no distribution, no rounding, no library's logarithm."""

    def __init__(self, name):
        self.bits = np.random.PCG64(zlib.crc32(name.encode()))

    def __call__(self, *shape, scale=1.0):
        """Uniform in [-scale, scale), float32; keep `scale` a power of two."""
        raw = self.bits.random_raw(int(np.prod(shape))) >> np.uint64(40)
        return ((raw.astype(np.float64) * 2.0**-23 - 1) * scale).astype(np.float32).reshape(shape)

    def chance(self, *shape, of=0.5):
        raw = self.bits.random_raw(int(np.prod(shape))) >> np.uint64(40)
        return (raw.astype(np.float64) * 2.0**-24 < of).reshape(shape)


# ------------------------------------------------------------------------------------------------------------ reference


def f64(x):
    return None if x is None else np.asarray(x, np.float64)


def attend(q, k, v, allowed=None, bias=None, scale=None, softcap=0.0, sinks=None):
    """q [B,H,L,D], k [B,Hkv,S,D], v [B,Hkv,S,E] -> dict of output and stages. A row without a key gives zeros."""
    q, k, v = f64(q), f64(k), f64(v)
    (B, H, L, D), (Hkv, S) = q.shape, k.shape[1:3]
    scale = 1 / np.sqrt(D) if scale is None else scale
    allowed = np.broadcast_to(True if allowed is None else allowed, (B, H, L, S)).copy()
    if bias is not None:
        bias = np.broadcast_to(f64(bias), (B, H, L, S))
        allowed &= bias != -np.inf
    result = {name: np.zeros((B, H, L, S)) for name in ("raw", "capped", "masked", "weights")}
    result["out"] = np.zeros((B, H, L, v.shape[-1]))
    for b in range(B):
        for h in range(H):
            g = h // (H // Hkv)
            for i in range(L):
                raw = np.array([scale * np.sum(q[b, h, i] * k[b, g, j]) for j in range(S)])
                capped = softcap * np.tanh(raw / softcap) if softcap > 0 else raw
                ok = allowed[b, h, i]
                masked = np.where(ok, capped + (0 if bias is None else np.where(ok, bias[b, h, i], 0)), -np.inf)
                result["raw"][b, h, i], result["capped"][b, h, i] = raw, capped
                result["masked"][b, h, i] = masked
                if not ok.any():
                    continue
                logits = masked[ok] if sinks is None else np.append(masked[ok], f64(sinks)[h])
                e = np.exp(logits - logits.max())
                w = np.zeros(S)
                w[ok] = (e / e.sum())[: ok.sum()]
                result["weights"][b, h, i] = w
                result["out"][b, h, i] = sum(w[j] * v[b, g, j] for j in range(S) if ok[j])
    return result


def linear(x, w, b=None):
    """x [..., in], w [out, in]."""
    y = f64(x) @ f64(w).T
    return y if b is None else y + f64(b)


def split(x, heads):
    """[B, L, heads*d] -> [B, heads, L, d]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def merge(x):
    """[B, heads, L, d] -> [B, L, heads*d]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def rotate(x, cos, sin, interleaved):
    """x [B, H, L, D]; cos, sin [B, L, r/2]; components from r on are unchanged."""
    x, y = f64(x), f64(x).copy()
    half = cos.shape[-1]
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        c, s = f64(cos)[:, None, :, i], f64(sin)[:, None, :, i]
        y[..., a] = x[..., a] * c - x[..., b] * s
        y[..., b] = x[..., a] * s + x[..., b] * c
    return y


# ----------------------------------------------------------------------------------------------------------------- onnx


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


def keep(*shape, of=0.6):
    return lambda r: r.chance(*shape, of=of)


def added(*shape, masked=0.0, dtype=np.float32):
    return lambda r: np.where(r.chance(*shape, of=masked), -np.inf, r(*shape, scale=2.0)).astype(dtype)


def without_row(shape, row):
    def make(r):
        m = r.chance(*shape, of=0.7)
        m[..., 0] = True
        m[..., row, :] = False
        return m

    return make


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


# ---------------------------------------------------------------------------------------------------------------- torch


def module(name, N, L, S, E, H, kdim=None, vdim=None, attn_mask=None, padding=None, bias=True, self_attention=False, **given):
    """An nn.MultiheadAttention case."""
    r = Random(name)
    attributes = {"embed_dim": E, "num_heads": H, "bias": bias, "kdim": kdim, "vdim": vdim, "dropout": 0.0,
                  "self_attention": self_attention, "batch_first": True, "unbatched": False, "need_weights": True,
                  "average_attn_weights": False, "add_bias_kv": False, "add_zero_attn": False} | given
    query = r(N, L, E)
    key = query if self_attention else r(N, S, kdim or E)
    value = query if self_attention else r(N, S, vdim or E)
    wq, wk, wv, wo = r(E, E, scale=0.5), r(E, kdim or E, scale=0.5), r(E, vdim or E, scale=0.5), r(E, E, scale=0.5)
    b, bo = (r(3 * E), r(E)) if bias else (np.zeros(3 * E, np.float32), None)
    q, k, v = (linear(x, w, b[i * E : (i + 1) * E]) for i, (x, w) in enumerate([(query, wq), (key, wk), (value, wv)]))

    state = {"out_proj.weight": wo} | ({"in_proj_bias": b, "out_proj.bias": bo} if bias else {})
    if kdim or vdim:
        state |= {"q_proj_weight": wq, "k_proj_weight": wk, "v_proj_weight": wv}
    else:
        state["in_proj_weight"] = np.concatenate([wq, wk, wv])
    extras = 0
    if attributes["add_bias_kv"]:
        state |= {"bias_k": r(1, 1, E), "bias_v": r(1, 1, E)}
        k = np.concatenate([k, np.repeat(f64(state["bias_k"]), N, 0)], 1)
        v = np.concatenate([v, np.repeat(f64(state["bias_v"]), N, 0)], 1)
        extras += 1
    if attributes["add_zero_attn"]:
        k, v = (np.concatenate([x, np.zeros((N, 1, E))], 1) for x in (k, v))
        extras += 1

    masks, allowed, added_ = {}, np.ones((N, H, L, S + extras), bool), np.zeros((N, H, L, S + extras))
    for key_name, make, shape in (("attn_mask", attn_mask, None), ("key_padding_mask", padding, (N, 1, 1, S))):
        if make is None:
            continue
        m = masks[key_name] = make(r)
        m = m.reshape(shape or ((N, H, L, S) if m.ndim == 3 else (1, 1, L, S)))
        if m.dtype == bool:
            allowed[..., :S] &= ~m
        else:
            added_[..., :S] += m
    found = attend(split(q, H), split(k, H), split(v, H), allowed, added_)
    found["weights"][~(allowed & (added_ != -np.inf)).any(-1)] = np.nan
    lost = np.isnan(found["weights"]).any((1, 3))
    y = linear(merge(found["out"]), wo, bo)
    y[lost] = np.nan
    weights = found["weights"].mean(1) if attributes["average_attn_weights"] else found["weights"]

    inputs = {"query": query, "key": key, "value": value}
    if not attributes["batch_first"]:
        inputs = {k: np.ascontiguousarray(x.swapaxes(0, 1)) for k, x in inputs.items()}
        y = y.swapaxes(0, 1)
    if attributes["unbatched"]:
        inputs = {k: x[0] for k, x in inputs.items()}
        masks = {k: m[0] if k == "key_padding_mask" else m for k, m in masks.items()}
        y, weights = y[0], weights[0]
    outputs = {"attn_output": np.ascontiguousarray(y)}
    if attributes["need_weights"]:
        outputs["attn_output_weights"] = weights
    case("torch", "MultiheadAttention", name, attributes, inputs | masks | state, outputs)


def torch_cases():
    drop = lambda *shape: lambda r: r.chance(*shape, of=0.3) & (np.arange(shape[-1]) > 0)
    last = lambda lengths, S: lambda r: np.arange(S) >= np.array(lengths)[:, None]
    module("module_causal", 2, 5, 5, 12, 3, self_attention=True, attn_mask=lambda r: np.triu(np.ones((5, 5), bool), 1))
    module("module_both_masks", 2, 3, 6, 12, 3, attn_mask=drop(3, 6), padding=last([4, 6], 6))
    module("module_empty_rows", 2, 3, 4, 8, 2, padding=last([0, 3], 4))
    module("module_empty_head", 1, 3, 4, 8, 2, attn_mask=lambda r: np.arange(2 * 3 * 4).reshape(2, 3, 4) < 4)
    module("module_seq_first_heads", 2, 3, 4, 8, 2, batch_first=False, average_attn_weights=True, attn_mask=added(4, 3, 4, masked=0.1))
    module("module_float_masks", 2, 3, 4, 8, 2, attn_mask=added(3, 4), padding=added(2, 4))
    module("module_extra_keys", 2, 3, 4, 8, 2, kdim=6, vdim=5, add_bias_kv=True, add_zero_attn=True, attn_mask=lambda r: np.ones((3, 4), bool))
    module("module_unbatched", 1, 3, 4, 8, 2, bias=False, unbatched=True, need_weights=False, padding=last([3], 4))

    def functional(name, q, k, v, mask=None, **attributes):
        r = Random(name)
        inputs = {"query": r(*q), "key": r(*k), "value": r(*v)}
        lift = lambda x: x.reshape((1,) * max(0, 3 - x.ndim) + x.shape) if x.ndim == 4 else x.reshape(-1, 1, *x.shape[-2:])
        allowed, bias = np.ones((q[-2], k[-2]), bool), None
        if attributes.get("is_causal"):
            allowed = np.tril(allowed)
        if mask is not None:
            m = inputs["attn_mask"] = mask(r)
            m = lift(m) if m.ndim > 2 else m
            allowed, bias = (allowed & m, None) if m.dtype == bool else (allowed, m)
        found = attend(*(lift(inputs[x]) for x in ("query", "key", "value")), allowed, bias, attributes.get("scale"))
        lost = np.isneginf(found["masked"]).all(-1)
        found["out"][lost], found["weights"][lost] = np.nan, np.nan
        outputs = {"output": found["out"].reshape(*q[:-1], v[-1]), "attn_weights": found["weights"].reshape(*q[:-1], k[-2])}
        case("torch", "scaled_dot_product_attention", name, {"dropout_p": 0.0, "is_causal": False} | attributes, inputs, outputs)

    functional("functional_causal", (1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 6), is_causal=True)
    functional("functional_rank3_keep", (2, 4, 8), (2, 5, 8), (2, 5, 8), mask=without_row((2, 4, 5), 1), scale=0.5)
    functional("functional_rank2_bias", (4, 8), (5, 8), (5, 8), mask=added(4, 5))


# ------------------------------------------------------------------------------------------------------------ tutorials


def tutorial_cases():
    def run(x, wq, wk, wv, wo, H, Hkv=None, bias=None, allowed=None):
        x, flat = (x[None], True) if x.ndim == 2 else (x, False)
        bq, bk, bv, bo = bias or (None,) * 4
        q, k, v = linear(x, wq, bq), linear(x, wk, bk), linear(x, wv, bv)
        found = attend(split(q, H), split(k, Hkv or H), split(v, Hkv or H), allowed)
        y = linear(merge(found["out"]), wo, bo)
        return [r[0] if flat else r for r in (y, found["weights"], merge(found["out"]), found["out"])]

    r = Random("tutorial_fused_causal")
    x, wqkv, wo = r(2, 5, 12), r(36, 12, scale=0.5), r(12, 12, scale=0.5)
    y, weights, *_ = run(x, *np.split(wqkv, 3), wo, 3, allowed=np.tril(np.ones((5, 5), bool)))
    case("tutorials", "MultiHeadAttention", "tutorial_fused_causal",
         {"d_model": 12, "n_heads": 3, "bias": False, "fused_qkv": True, "is_causal": True, "layout": "nn.Linear (out,in); qkv rows = q,k,v"},
         {"x": x, "qkv.weight": wqkv, "W_o.weight": wo}, {"out": y, "weights": weights})

    for name, text, polarity in (("tutorial_drop", "True = masked out (masked_fill -inf)", True),
                                 ("tutorial_keep", "0 = masked (masked_fill -1e9)", False)):
        r = Random(name)
        x, ws, bs = r(2, 4, 8), [r(8, 8) for _ in "qkvo"], [r(8) for _ in "qkvo"]
        drop = np.triu(np.ones((4, 4), bool), 1)
        y, *_ = run(x, *ws, 2, bias=bs, allowed=~drop)
        mask = drop if polarity else (~drop).astype(np.float32)[None, None]
        state = {f"W_{n}.{kind}": t for kind, ts in (("weight", ws), ("bias", bs)) for n, t in zip("qkvo", ts)}
        case("tutorials", "MultiHeadAttention", name,
             {"embed_dim" if polarity else "d_model": 8, "num_heads": 2, "bias": True, "layout": "nn.Linear (out,in)", "mask": text},
             {"x" if polarity else "x_in": x, "mask": mask} | state, {"out" if polarity else "y": y})

    r = Random("tutorial_gqa_unbatched")
    X, wq, wk, wv, wo = r(5, 12), r(12, 12, scale=0.5), r(12, 6, scale=0.5), r(12, 6, scale=0.5), r(12, 12, scale=0.5)
    y, weights, *_ = run(X, wq.T, wk.T, wv.T, wo.T, 4, 2)
    case("tutorials", "MultiHeadAttention", "tutorial_gqa_unbatched",
         {"d_model": 12, "n_heads": 4, "n_kv_heads": 2, "bias": False, "layout": "X @ W (in,out), unbatched (n,d)"},
         {"X": X, "W_q": wq, "W_k": wk, "W_v": wv, "W_o": wo}, {"output": y, "weights": weights})

    r = Random("tutorial_stages")
    x, ws = r(2, 3, 8), [r(8, 8) for _ in "qkvo"]
    y, weights, concat, heads = run(x, *(w.T for w in ws), 2)
    case("tutorials", "MultiHeadAttention", "tutorial_stages",
         {"d_model": 8, "n_heads": 2, "d_head": 4, "bias": False, "layout": "x @ W (in,out)"},
         {"x": x} | {f"W{n}": w for n, w in zip("qkvo", ws)}, {"y": y, "attn": weights, "concat": concat, "out_h": heads})

    r = Random("tutorial_matmul")
    x0, W = r(3, 6), r(6, 4)
    case("tutorials", "MatMul", "tutorial_matmul", {"layout": "x @ W (in,out)"}, {"x0": x0, "W": W}, {"q0": f64(x0) @ f64(W)})

    r = Random("tutorial_softmax")
    logits = np.where(np.tri(5, dtype=bool), r(5, 5, scale=8.0), -np.inf).astype(np.float32)
    e = np.exp(f64(logits))
    case("tutorials", "Softmax", "tutorial_softmax", {"axis": -1}, {"logits": logits}, {"weights": e / e.sum(-1, keepdims=True)})


# -------------------------------------------------------------------------------------------------------------- decoder


def decoder(config, w, x, offset):
    """One causal layer over all tokens at once; returns output, keys and values."""
    H, Hkv, D = config["num_heads"], config["num_kv_heads"], config["head_dim"]
    B, T, _ = x.shape
    q, k, v = (linear(x, w[f"{n}_proj.weight"], w.get(f"{n}_proj.bias")) for n in "qkv")
    norm = lambda t, gain: t / np.sqrt((t**2).mean(-1, keepdims=True) + config["norm_eps"]) * f64(gain)
    if config["qk_norm"] == "full":
        q, k = norm(q, w["q_norm.weight"]), norm(k, w["k_norm.weight"])
    q, k, v = split(q, H), split(k, Hkv), split(v, Hkv)
    if config["qk_norm"] == "per_head":
        q, k = norm(q, w["q_norm.weight"]), norm(k, w["k_norm.weight"])
    position = offset + np.arange(T)
    if config["rope"]:
        dim, theta = config["rope"]["rotary_dim"], config["rope"]["theta"]
        angle = position[:, None] * theta ** (-2 * np.arange(dim // 2) / dim)
        turn = [np.broadcast_to(f(angle), (B, T, dim // 2)) for f in (np.cos, np.sin)]
        q, k = (rotate(t, *turn, config["rope"]["style"] == "interleaved") for t in (q, k))
    distance = position[:, None] - position
    allowed = distance >= 0
    if config["sliding_window"]:
        allowed &= distance < config["sliding_window"]
    bias = -f64(w["alibi_slopes"])[:, None, None] * distance if config["alibi"] else None
    found = attend(q, k, v, allowed, bias, config["scale"], config["softcap"] or 0.0, w.get("sinks"))
    return linear(merge(found["out"]), w["o_proj.weight"], w.get("o_proj.bias")), k, v


def decoder_config(**given):
    config = {"batch": 1, "prefill_len": 5, "decode_steps": 3, "model_dim": 12, "num_heads": 4, "num_kv_heads": 2, "head_dim": 4,
              "v_head_dim": None, "is_causal": True, "position_offset": 0, "rope": None, "qk_norm": None, "norm_eps": 1e-6,
              "qkv_bias": False, "o_bias": False, "alibi": False, "sinks": False, "sliding_window": None, "softcap": None,
              "scale": None} | given
    config["v_head_dim"] = config["v_head_dim"] or config["head_dim"]
    config["scale"] = config["scale"] or float(config["head_dim"] ** -0.5)
    return config


def decoder_weights(config, r):
    E, H, Hkv, D, V = (config[n] for n in ("model_dim", "num_heads", "num_kv_heads", "head_dim", "v_head_dim"))
    rows = {"q": H * D, "k": Hkv * D, "v": Hkv * V}
    w = {f"{n}_proj.weight": r(m, E, scale=0.5) for n, m in rows.items()} | {"o_proj.weight": r(E, H * V, scale=0.5)}
    if config["qkv_bias"]:
        w |= {f"{n}_proj.bias": r(m) for n, m in rows.items()}
    if config["o_bias"]:
        w["o_proj.bias"] = r(E)
    if config["qk_norm"]:
        full = config["qk_norm"] == "full"
        w |= {"q_norm.weight": r(H * D if full else D) + np.float32(1.5), "k_norm.weight": r(Hkv * D if full else D) + np.float32(1.5)}
    if config["alibi"]:
        w["alibi_slopes"] = np.array([2.0 ** -(h + 1) for h in range(H)], np.float32)
    if config["sinks"]:
        w["sinks"] = r(H, scale=2.0)
    return w


def decoder_cases():
    rope = lambda style, dim, theta=10000.0: {"style": style, "rotary_dim": dim, "theta": theta}

    def add(name, **given):
        r, config = Random(name), decoder_config(**given)
        w = decoder_weights(config, r)
        B, T, N = config["batch"], config["prefill_len"], config["decode_steps"]
        x = r(B, T + N, config["model_dim"])
        # A causal layer gives the same rows at once as token by token, so one call is the reference for both.
        y, k, v = decoder(config, w, x, config["position_offset"])
        inputs, outputs = {"x": x[:, :T]} | w, {"y_prefill": y[:, :T], "k_cache": k, "v_cache": v}
        if N:
            inputs["x_decode"], outputs["y_decode"] = x[:, T:], y[:, T:]
        case("decoder", "DecoderAttention", name, config, inputs, outputs)

    add("decoder_half_window", batch=2, rope=rope("half", 4), sliding_window=3)
    add("decoder_interleaved_partial_norm", head_dim=6, rope=rope("interleaved", 4, 500000.0), qk_norm="per_head", position_offset=100)
    add("decoder_full_norm_bias_softcap_sinks", batch=2, rope=rope("half", 4), qk_norm="full", norm_eps=1e-5, qkv_bias=True, o_bias=True,
        softcap=2.0, sinks=True)
    add("decoder_alibi_values", num_kv_heads=4, alibi=True, v_head_dim=6)
    add("decoder_mqa_no_decode", num_kv_heads=1, decode_steps=0, rope=rope("half", 2), scale=1.0)
    add("decoder_one_token_window", prefill_len=1, decode_steps=4, sliding_window=1, rope=rope("interleaved", 4))

    def convert(name, before, after, bias):
        r, config = Random(name), decoder_config(num_heads=before, num_kv_heads=before, batch=2, rope=rope("half", 4), qkv_bias=bias)
        w, D = decoder_weights(config, r), config["head_dim"]
        x = r(2, 5, config["model_dim"])
        pool = lambda t: f64(t).reshape(after, before // after, D, *t.shape[1:]).mean(1).reshape(after * D, *t.shape[1:])
        changed = {n: pool(w[n]) for n in w if n.startswith(("k_proj", "v_proj"))}
        y_mha, *_ = decoder(config, w, x, 0)
        y_gqa, *_ = decoder(config | {"num_kv_heads": after}, w | changed, x, 0)
        attributes = {k: v for k, v in config.items() if k not in ("num_kv_heads", "prefill_len", "decode_steps")}
        case("decoder", "MHAToGQA", name, attributes | {"num_kv_heads_before": before, "num_kv_heads_after": after}, {"x": x} | w,
             {f"gqa.{n}": t for n, t in changed.items()} | {"y_mha": y_mha, "y_gqa": y_gqa})

    convert("convert_6_to_2_bias", 6, 2, True)
    convert("convert_4_to_1", 4, 1, False)


# ---------------------------------------------------------------------------------------------------------------- files


def file_cases():
    def add(name, verdict, content, reason, tensors=(), metadata=None, loader=None, lenient=False):
        entry = {"name": name, "set": "files", "op": "LoadSafetensors", "attributes": {}, "verdict": verdict, "lenient_ok": lenient, "reason": reason}
        if verdict == "accept":
            entry["tensors"] = [
                {"name": n, "dtype": d, "shape": s, "nbytes": len(b), "sha256": hashlib.sha256(b).hexdigest()} for n, d, s, b in tensors
            ]
        if metadata is not None:
            entry["metadata"] = metadata
        if loader:
            entry["loader"] = {"expect": loader, "module": "nn.MultiheadAttention(embed_dim=4, num_heads=2)"}
        write(entry, content)

    def raw(header, data=b"", length=None):
        text = header if isinstance(header, bytes) else header.encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    one = lambda dtype="F32", shape="[1]", begin=0, end=4: f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'
    float_ = struct.pack("<f", 1.5)

    add("no_tensors", "accept", raw("{}"), "an empty header")
    add("scalar_odd_header", "accept", raw('{"ab":' + one(shape="[]") + "}", float_), "rank 0, data not aligned in the file", [("ab", "F32", [], float_)])
    add("empty_dimension", "accept", raw('{"a":' + one(shape="[3,0]", end=0) + "}"), "a tensor of no bytes", [("a", "F32", [3, 0], b"")])
    halves = bytes.fromhex("0100 00fc 007e ff7b")
    add("f16_special", "accept", raw('{"a":' + one("F16", "[4]", 0, 8) + "}", halves), "subnormal, -inf, NaN, largest", [("a", "F16", [4], halves)])
    add("unicode_names", "accept", raw('{"__metadata__":{"é":"日本"},"ключ":' + one() + "}", float_), "names are any text",
        [("ключ", "F32", [1], float_)], [["é", "日本"]])
    add("unordered_offsets", "accept", raw('{"a":' + one(begin=4, end=8) + ',"b":' + one() + "}", float_ + float_[::-1]), "data in another order than the header",
        [("a", "F32", [1], float_[::-1]), ("b", "F32", [1], float_)])

    add("seven_bytes", "reject", b"\0" * 7, "shorter than the header length")
    add("header_past_end", "reject", raw("{}", length=3), "the header ends behind the file")
    add("header_length_64_bits", "reject", raw("{}", length=2**64 - 1), "2^64 - 1 bytes of header")
    add("data_missing", "reject", raw('{"a":' + one() + "}", float_[:3]), "the last byte is missing")
    add("data_left_over", "reject", raw('{"a":' + one() + "}", float_ + b"\0"), "a byte that no tensor covers")
    add("overlap", "reject", raw('{"a":' + one() + ',"b":' + one() + "}", float_), "two tensors on the same bytes")
    add("hole", "reject", raw('{"a":' + one() + ',"b":' + one(begin=5, end=9) + "}", float_ * 2 + b"\0"), "a byte between two tensors")
    add("size_mismatch", "reject", raw('{"a":' + one(shape="[2]") + "}", float_), "two floats in four bytes")
    add("size_overflow", "reject", raw('{"a":' + one(shape="[4294967296,4294967296]", end=0) + "}"), "2^64 elements wrap to 0")
    add("negative_offset", "reject", raw('{"a":' + one(begin=-4, end=0) + "}"), "an offset below 0")
    add("unknown_dtype", "reject", raw('{"a":' + one("F31") + "}", float_), "a dtype that does not exist")
    add("not_utf8", "reject", raw(b'{"\xff":' + one().encode() + b"}", float_), "a name that is not UTF-8")
    add("not_an_object", "reject", raw("[]"), "a list at the top")
    add("nested_shape", "reject", raw('{"a":' + one(shape="[[1]]") + "}", float_), "a list as a dimension")
    add("many_brackets", "reject", raw("[" * 20000 + "]" * 20000), "20,000 nested lists")
    add("same_name_twice", "reject", raw('{"a":' + one() + ',"a":' + one() + "}", float_), "readers differ: the last one, or none", lenient=True)

    def layer(name, expect, reason, **changed):
        r = Random(name)
        state = {"in_proj_weight": r(12, 4), "in_proj_bias": r(12), "out_proj.weight": r(4, 4), "out_proj.bias": r(4)} | changed
        state = {n: t for n, t in state.items() if t is not None}
        listed = [(n, "F32", list(t.shape), t.tobytes()) for n, t in sorted(state.items())]
        add(name, "accept", container(state, {"format": "pt"}), reason, listed, [["format", "pt"]], expect)

    layer("layer_complete", "accept", "a whole state dict")
    layer("layer_no_in_proj_bias", "reject", "one bias of two", in_proj_bias=None)
    layer("layer_no_out_proj", "reject", "no output projection", **{"out_proj.weight": None})
    layer("layer_transposed", "reject", "in_proj_weight is [E, 3E]", in_proj_weight=Random("transposed")(4, 12))


for old in HERE.glob("*/*.safetensors"):
    old.unlink()
for make in (onnx_cases, torch_cases, tutorial_cases, decoder_cases, file_cases):
    make()
lines = ",\n".join(json.dumps(entry, sort_keys=True, ensure_ascii=True) for entry in CASES)
(HERE / "index.json").write_text(f'{{"format":1,"cases":[\n{lines}\n]}}\n')
print(f"{len(CASES)} cases")
