"""Whole decoders: config.json, weights, and the logits of a prompt, of given tokens behind it, and of the greedy continuation."""

import json

import numpy as np

from .reference import attend, f64, linear, merge, rotate, split
from .store import CASES, HERE, Random, case, container


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mlp(w, at, x):
    gate, up = (linear(x, w[f"{at}.{n}_proj.weight"], w.get(f"{at}.{n}_proj.bias")) for n in ("gate", "up"))
    return linear(silu(gate) * up, w[f"{at}.down_proj.weight"], w.get(f"{at}.down_proj.bias"))


def experts(w, at, x, moe):
    """The experts of each token one after the other: x [T, E]."""
    scores = softmax(linear(x, w[f"{at}.gate.weight"]))
    correction = w.get(f"{at}.moe_statics.e_score_correction_bias")
    order = np.argsort(-(scores if correction is None else scores + f64(correction)), axis=-1)[:, : moe["chosen"]]
    y = np.zeros_like(x)
    for t, chosen in enumerate(order):
        weights = scores[t, chosen] / (scores[t, chosen].sum() if moe["normed"] else 1)
        for e, weight in zip(chosen, weights):
            y[t] += weight * mlp(w, f"{at}.experts.{e}", x[t])
    return y + mlp(w, f"{at}.shared_experts", x) if moe["shared"] else y


def logits(config, rules, w, ids):
    """All logits [T, vocab] of one sequence."""
    H, Hkv, D = config["num_attention_heads"], config["num_key_value_heads"], rules["head_dim"]
    norm = lambda t, name: t / np.sqrt((t**2).mean(-1, keepdims=True) + config["rms_norm_eps"]) * f64(w[f"{name}.weight"])
    T = len(ids)
    angle = np.arange(T)[:, None] * config["rope_theta"] ** (-2 * np.arange(D // 2) / D)
    turn = [np.broadcast_to(f(angle), (1, T, D // 2)) for f in (np.cos, np.sin)]
    causal = np.arange(T)[:, None] >= np.arange(T)
    x = f64(w["model.embed_tokens.weight"])[ids]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        own = f"{at}.self_attn"
        n = norm(x, f"{at}.input_layernorm")[None]
        q, k, v = (linear(n, w[f"{own}.{p}_proj.weight"], w.get(f"{own}.{p}_proj.bias")) for p in "qkv")
        if rules["qk_norm"]:
            q, k = norm(q, f"{own}.q_norm"), norm(k, f"{own}.k_norm")
        q, k, v = split(q, H), split(k, Hkv), split(v, Hkv)
        q, k = (rotate(t, *turn, rules["interleaved"]) for t in (q, k))
        out = merge(attend(q, k, v, causal)["out"])
        x = x + linear(out, w[f"{own}.o_proj.weight"], w.get(f"{own}.o_proj.bias"))[0]
        n = norm(x, f"{at}.post_attention_layernorm")
        x = x + (experts(w, f"{at}.mlp", n, rules["moe"]) if layer in rules["sparse"] else mlp(w, f"{at}.mlp", n))
    return linear(norm(x, "model.norm"), w.get("lm_head.weight", w["model.embed_tokens.weight"]))


def weights(config, rules, r):
    E, V = config["hidden_size"], config["vocab_size"]
    H, Hkv, D = config["num_attention_heads"], config["num_key_value_heads"], rules["head_dim"]
    gain = lambda n: r(n, scale=0.5) + np.float32(1)
    w = {"model.embed_tokens.weight": r(V, E), "model.norm.weight": gain(E)}

    def matrix(name, n, k, bias=rules["biased"]):
        w[f"{name}.weight"] = r(n, k, scale=0.5)
        if bias:
            w[f"{name}.bias"] = r(n, scale=0.5)

    def add_mlp(at, dim):
        matrix(f"{at}.gate_proj", dim, E)
        matrix(f"{at}.up_proj", dim, E)
        matrix(f"{at}.down_proj", E, dim)

    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            w[f"{at}.{name}.weight"] = gain(E)
        for name, n in (("q", H * D), ("k", Hkv * D), ("v", Hkv * D)):
            matrix(f"{at}.self_attn.{name}_proj", n, E)
        matrix(f"{at}.self_attn.o_proj", E, H * D)
        if rules["qk_norm"]:
            w |= {f"{at}.self_attn.{n}_norm.weight": gain(heads * D) for n, heads in (("q", H), ("k", Hkv))}
        if layer not in rules["sparse"]:
            add_mlp(f"{at}.mlp", config["intermediate_size"])
            continue
        moe = rules["moe"]
        matrix(f"{at}.mlp.gate", moe["experts"], E, bias=False)
        if moe["corrected"]:
            w[f"{at}.mlp.moe_statics.e_score_correction_bias"] = r(1, moe["experts"], scale=0.25)
        for e in range(moe["experts"]):
            add_mlp(f"{at}.mlp.experts.{e}", moe["dim"])
        if moe["shared"]:
            add_mlp(f"{at}.mlp.shared_experts", moe["shared"] * moe["dim"])
    if not config["tie_word_embeddings"]:
        w["lm_head.weight"] = r(V, E, scale=0.5)
    return w


def model(name, config, rules, prompt=11, given=5, steps=6):
    r = Random(name)
    rules = {"qk_norm": False, "interleaved": False, "biased": False, "sparse": (), "moe": None} | rules
    config |= {"hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
    w = weights(config, rules, r)
    ids = [int(i) for i in ((r(prompt + given) + 1) / 2 * config["vocab_size"]).astype(np.int64)]
    both = logits(config, rules, w, ids)
    greedy, sequence = [], ids[:prompt]
    for _ in range(steps):
        greedy.append(int(logits(config, rules, w, sequence)[-1].argmax()))
        sequence = sequence + greedy[-1:]
    row = lambda values: np.array(values, np.int32)[None]
    case("models", "CausalLM", name, {}, {"input_ids": row(ids[:prompt]), "decode_ids": row(ids[prompt:])},
         {"logits": both[None, :prompt], "logits_decode": both[None, prompt:], "greedy": row(greedy)}, copies=("greedy",),
         folder=f"models/{name}")
    (HERE / CASES[-1]["folder"] / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (HERE / CASES[-1]["folder"] / "model.safetensors").write_bytes(container(w))


def model_cases():
    size = {"vocab_size": 53, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
    model("ernie", size | {"model_type": "ernie4_5", "head_dim": 10, "num_hidden_layers": 2, "intermediate_size": 36,
                           "rope_theta": 500_000.0, "use_bias": True, "tie_word_embeddings": True},
          {"head_dim": 10, "interleaved": True, "biased": True})
    model("ernie_experts", size | {"model_type": "ernie4_5_moe", "head_dim": 8, "num_hidden_layers": 4, "intermediate_size": 36,
                                   "moe_intermediate_size": 12, "moe_num_experts": 6, "moe_k": 3, "moe_num_shared_experts": 2,
                                   "moe_layer_start_index": 0, "moe_layer_interval": 2, "moe_layer_end_index": -1,
                                   "rope_theta": 10_000.0, "use_bias": False, "tie_word_embeddings": False},
          {"head_dim": 8, "interleaved": True, "sparse": (1, 3),
           "moe": {"experts": 6, "chosen": 3, "dim": 12, "shared": 2, "corrected": True, "normed": True}})
    model("olmoe", size | {"model_type": "olmoe", "num_hidden_layers": 2, "intermediate_size": 20, "num_experts": 7,
                           "num_experts_per_tok": 3, "norm_topk_prob": True, "rope_theta": 10_000.0,
                           "tie_word_embeddings": False},
          {"head_dim": 6, "qk_norm": True, "sparse": (0, 1),
           "moe": {"experts": 7, "chosen": 3, "dim": 20, "shared": 0, "corrected": False, "normed": True}})
