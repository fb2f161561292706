"""Models of decoder.py as checkpoints of the families that compute the same: Llama, GPT-2 and DeepSeek-V2."""

import torch

from copy_task import LENGTH, VOCABULARY
from decoder import D_MODEL, NORM_EPS, THETA, LatentAttention

ONES, ZEROS = torch.ones(D_MODEL), torch.zeros(D_MODEL)


def checkpoint_of(decoder, index):
    """The config.json and the tensors of one of the stacked models."""
    if decoder.kind != "rope":
        return gpt2(decoder, index)
    heads = decoder.layers[0].heads
    config = {
        "hidden_size": D_MODEL,
        "num_attention_heads": heads,
        "num_hidden_layers": len(decoder.layers),
        "intermediate_size": 0,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": THETA,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LENGTH,
        "tie_word_embeddings": False,
    }
    tensors = {
        "model.embed_tokens.weight": decoder.embed[index],
        "model.norm.weight": ONES,
        "lm_head.weight": decoder.head[index],
    }
    for i, layer in enumerate(decoder.layers):
        tensors[f"model.layers.{i}.input_layernorm.weight"] = ONES
        for name, weight in layer.weights.items():
            tensors[f"model.layers.{i}.self_attn.{name}.weight"] = weight[index]
        if isinstance(layer, LatentAttention):
            tensors[f"model.layers.{i}.self_attn.kv_a_layernorm.weight"] = torch.ones(layer.rank)
    first = decoder.layers[0]
    if isinstance(first, LatentAttention):
        return config | {
            "model_type": "deepseek_v2",
            "q_lora_rank": None,
            "kv_lora_rank": first.rank,
            "qk_nope_head_dim": first.head_dim,
            "qk_rope_head_dim": first.rope_dim,
            "v_head_dim": first.head_dim,
            "first_k_dense_replace": len(decoder.layers),
        }, tensors
    return config | {"model_type": "llama", "num_key_value_heads": first.kv_heads}, tensors


def gpt2(decoder, index):
    """GPT-2 has no layers without MLP: theirs have one unit, and zeros."""
    config = {
        "model_type": "gpt2",
        "n_embd": D_MODEL,
        "n_head": decoder.layers[0].heads,
        "n_layer": len(decoder.layers),
        "n_inner": 1,
        "n_positions": LENGTH,
        "layer_norm_epsilon": NORM_EPS,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
    }
    tensors = {
        "transformer.wte.weight": decoder.embed[index],
        "transformer.wpe.weight": decoder.positions[index],
        "transformer.ln_f.weight": ONES,
        "transformer.ln_f.bias": ZEROS,
        "lm_head.weight": decoder.head[index],
    }
    for i, layer in enumerate(decoder.layers):
        q, k, v, o = (weight[index].T for weight in layer.weights.values())
        own = {
            "ln_1.weight": ONES,
            "ln_1.bias": ZEROS,
            "attn.c_attn.weight": torch.cat((q, k, v), 1),
            "attn.c_attn.bias": torch.zeros(3 * D_MODEL),
            "attn.c_proj.weight": o,
            "attn.c_proj.bias": ZEROS,
            "ln_2.weight": ONES,
            "ln_2.bias": ZEROS,
            "mlp.c_fc.weight": torch.zeros(D_MODEL, 1),
            "mlp.c_fc.bias": torch.zeros(1),
            "mlp.c_proj.weight": torch.zeros(1, D_MODEL),
            "mlp.c_proj.bias": ZEROS,
        }
        tensors |= {f"transformer.h.{i}.{name}": weight for name, weight in own.items()}
    return config, tensors
