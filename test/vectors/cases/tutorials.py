"""The tutorials' attention modules in their layouts and with their masks."""

import numpy as np

from .reference import attend, f64, linear, merge, split
from .store import Random, case


def tutorial_cases():
    def run(x, wq, wk, wv, wo, H, Hkv=None, bias=None, allowed=None, added=None):
        x, flat = (x[None], True) if x.ndim == 2 else (x, False)
        bq, bk, bv, bo = bias or (None,) * 4
        q, k, v = linear(x, wq, bq), linear(x, wk, bk), linear(x, wv, bv)
        found = attend(split(q, H), split(k, Hkv or H), split(v, Hkv or H), allowed, added)
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

    r = Random("tutorial_additive")
    x, ws, mask = r(4, 8), [r(8, 8) for _ in "qkvo"], r(4, 4, scale=4.0)
    mask[0, 1:] = -np.inf
    y, *_ = run(x, *(w.T for w in ws), 2, added=mask)
    case("tutorials", "MultiHeadAttention", "tutorial_additive",
         {"d_model": 8, "n_heads": 2, "bias": False, "layout": "X @ W (in,out), unbatched (n,d)", "mask": "added to the scores"},
         {"X": x, "mask": mask} | {f"W_{n}": w for n, w in zip("qkvo", ws)}, {"output": y})

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
