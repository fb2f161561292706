"""Layers and products on GGUF blocks: 32 weights of a row that share a float16 scale."""

import numpy as np

from .decoder import decoder, decoder_config
from .reference import linear
from .store import Random, case


def round_away(x):
    return np.sign(x) * np.floor(np.abs(x) + np.float32(0.5))


def q8_0(w):
    """[n, k] float32 to [n, k / 32 * 34] bytes: d = max|w| / 127, q = w * (1 / d), halves away from zero."""
    x = w.reshape(-1, 32)
    d = np.abs(x).max(1) / np.float32(127)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    q = round_away(x * inverse[:, None]).astype(np.int8)
    return np.concatenate([d.astype(np.float16).view(np.uint8).reshape(-1, 2), q.view(np.uint8)], 1).reshape(len(w), -1)


def q4_0(w):
    """[n, k] float32 to [n, k / 32 * 18] bytes: d = m / -8 for the first of the largest by size, q = min(15, floor(w / d + 8.5))."""
    x = w.reshape(-1, 32)
    d = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)[:, 0] / np.float32(-8)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    q = np.minimum(15, (x * inverse[:, None] + np.float32(8.5)).astype(np.int8)).astype(np.uint8)
    return np.concatenate([d.astype(np.float16).view(np.uint8).reshape(-1, 2), q[:, :16] | q[:, 16:] << 4], 1).reshape(len(w), -1)


def dequantised(blocks, format):
    """What blocks stand for, [n, k] float32: d times an integer, which is exact."""
    rows = blocks.reshape(-1, {"Q8_0": 34, "Q4_0": 18}[format])
    d = rows[:, :2].copy().view(np.float16).astype(np.float32)
    if format == "Q8_0":
        q = rows[:, 2:].copy().view(np.int8)
    else:
        q = np.concatenate([rows[:, 2:] & 15, rows[:, 2:] >> 4], 1).astype(np.int8) - 8
    return (d * q.astype(np.float32)).reshape(len(blocks), -1)


QUANTISERS = {"Q8_0": q8_0, "Q4_0": q4_0}


def quantised_cases():
    def product(name, format, n, k, tokens):
        r = Random(name)
        w, x = r(n, k), r(tokens, k)
        w[0, :32] = 0
        blocks = QUANTISERS[format](w)
        stands = dequantised(blocks, format)
        attributes = {"format": format, "block_size": 32, "in": k, "out": n, "tokens": tokens}
        outputs = {"w_dequantised": stands, "y": linear(x, stands)}
        case("quantised", "QuantMatMul", name, attributes, {"blocks": blocks, "w": w, "x": x}, outputs, copies=["w_dequantised"])

    product("product_q8", "Q8_0", 9, 64, 5)
    product("product_q4", "Q4_0", 10, 96, 1)

    def layer(name, format, **given):
        r, config = Random(name), decoder_config(**given)
        E, H, Hkv, D = (config[n] for n in ("model_dim", "num_heads", "num_kv_heads", "head_dim"))
        shapes = {"q": (H * D, E), "k": (Hkv * D, E), "v": (Hkv * D, E), "o": (E, H * D)}
        blocks = {n: QUANTISERS[format](r(*shape, scale=0.25)) for n, shape in shapes.items()}
        w = {f"{n}_proj.weight": dequantised(b, format) for n, b in blocks.items()}
        B, T, N = config["batch"], config["prefill_len"], config["decode_steps"]
        x = r(B, T + N, E)
        y, k, v = decoder(config, w, x, config["position_offset"])
        inputs = {"x": x[:, :T], "x_decode": x[:, T:]} | {f"{n}_proj.blocks": b for n, b in blocks.items()}
        outputs = {"y_prefill": y[:, :T], "y_decode": y[:, T:], "k_cache": k, "v_cache": v}
        case("quantised", "QuantDecoderAttention", name, config | {"format": format, "block_size": 32}, inputs, outputs)

    rope = {"style": "interleaved", "rotary_dim": 16, "theta": 10000.0}
    layer("layer_q8", "Q8_0", batch=2, model_dim=32, num_heads=4, num_kv_heads=2, head_dim=16, rope=rope)
    layer("layer_q4", "Q4_0", model_dim=64, num_heads=2, num_kv_heads=1, head_dim=16, rope=rope | {"style": "half", "rotary_dim": 8})
