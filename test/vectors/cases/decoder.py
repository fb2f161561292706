"""Decoder layers: prefill and decode, and the conversion to fewer key-value heads."""

import numpy as np

from .reference import attend, f64, linear, merge, rotate, split
from .store import Random, case


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
