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


def latent_weights(config, r):
    E, H, R, Q, N, P, V = (config[n] for n in ("model_dim", "num_heads", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
                                              "qk_rope_head_dim", "v_head_dim"))
    gain = lambda n: r(n) + np.float32(1.5)
    if Q:
        w = {"q_a_proj.weight": r(Q, E, scale=0.5), "q_a_layernorm.weight": gain(Q), "q_b_proj.weight": r(H * (N + P), Q, scale=0.5)}
    else:
        w = {"q_proj.weight": r(H * (N + P), E, scale=0.5)}
    return w | {"kv_a_proj_with_mqa.weight": r(R + P, E, scale=0.5), "kv_a_layernorm.weight": gain(R),
                "kv_b_proj.weight": r(H * (N + V), R, scale=0.5), "o_proj.weight": r(E, H * V, scale=0.5)}


def latent_decoder(config, w, x):
    """One causal layer of latent attention with expanded keys and values; returns output, latents and rotated keys."""
    H, R, N, P = (config[n] for n in ("num_heads", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"))
    B, T, _ = x.shape
    norm = lambda t, gain: t / np.sqrt((t**2).mean(-1, keepdims=True) + config["norm_eps"]) * f64(gain)
    if config["q_lora_rank"]:
        q = linear(norm(linear(x, w["q_a_proj.weight"]), w["q_a_layernorm.weight"]), w["q_b_proj.weight"])
    else:
        q = linear(x, w["q_proj.weight"])
    down = linear(x, w["kv_a_proj_with_mqa.weight"])
    latents = norm(down[..., :R], w["kv_a_layernorm.weight"])
    up = split(linear(latents, w["kv_b_proj.weight"]), H)
    position = np.arange(T)
    angle = position[:, None] * config["rope"]["theta"] ** (-2 * np.arange(P // 2) / P)
    turn = [np.broadcast_to(f(angle), (B, T, P // 2)) for f in (np.cos, np.sin)]
    interleaved = config["rope"]["style"] == "interleaved"
    q = split(q, H)
    q = np.concatenate([q[..., :N], rotate(q[..., N:], *turn, interleaved)], -1)
    rotated = rotate(down[:, None, :, R:], *turn, interleaved)
    k = np.concatenate([up[..., :N], np.broadcast_to(rotated, (B, H, T, P))], -1)
    found = attend(q, k, up[..., N:], position[:, None] >= position, None, config["scale"])
    return linear(merge(found["out"]), w["o_proj.weight"]), latents, rotated[:, 0]


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

    def latent(name, **given):
        config = {"batch": 2, "prefill_len": 6, "decode_steps": 3, "model_dim": 12, "num_heads": 3, "kv_lora_rank": 5, "q_lora_rank": None,
                  "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 3, "is_causal": True, "norm_eps": 1e-6,
                  "rope": rope("interleaved", 4)} | given
        config["rope"]["rotary_dim"] = config["qk_rope_head_dim"]
        config["scale"] = float((config["qk_nope_head_dim"] + config["qk_rope_head_dim"]) ** -0.5)
        r, B, T, N = Random(name), config["batch"], config["prefill_len"], config["decode_steps"]
        w = latent_weights(config, r)
        x = r(B, T + N, config["model_dim"])
        y, latents, rotated = latent_decoder(config, w, x)
        inputs = {"x": x[:, :T], "x_decode": x[:, T:]} | w
        outputs = {"y_prefill": y[:, :T], "y_decode": y[:, T:], "latent_cache": latents, "k_rope_cache": rotated}
        case("decoder", "MLA", name, config, inputs, outputs)

    latent("latent_full_queries")
    latent("latent_low_rank_queries_half", q_lora_rank=7, qk_rope_head_dim=6, v_head_dim=9, kv_lora_rank=8, rope=rope("half", 6))
    latent("latent_one_head_one_token", batch=1, prefill_len=1, decode_steps=2, num_heads=1, kv_lora_rank=1, v_head_dim=1)

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
