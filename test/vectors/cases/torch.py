"""PyTorch's nn.MultiheadAttention and functional scaled_dot_product_attention."""

import numpy as np

from .masks import added, without_row
from .reference import attend, f64, linear, merge, split
from .store import Random, case


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
