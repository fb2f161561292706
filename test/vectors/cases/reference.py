"""Attention and its parts in float64, by plain loops over batch rows, heads and queries."""

import numpy as np


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
