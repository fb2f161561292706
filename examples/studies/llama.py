"""Decoders of attention alone in PyTorch, and their files in the form of Llama, which headwise/models loads."""

import json
import math
import struct
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from checkpoint import write_checkpoint

THETA, EPS = 10_000.0, 1e-5
# A Llama has MLPs: they are written with this width and zeros.
MLP_WIDTH = 8


@dataclass(frozen=True)
class Sizes:
    vocab: int
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    length: int

    @property
    def head_dim(self):
        return self.d_model // self.heads


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * self.weight


def matrix(inputs, outputs, std):
    linear = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(linear.weight, std=std)
    return linear


class Attention(nn.Module):
    def __init__(self, sizes, std, std_out):
        super().__init__()
        self.sizes = sizes
        kv = sizes.kv_heads * sizes.head_dim
        self.q_proj = matrix(sizes.d_model, sizes.d_model, std)
        self.k_proj = matrix(sizes.d_model, kv, std)
        self.v_proj = matrix(sizes.d_model, kv, std)
        self.o_proj = matrix(sizes.d_model, sizes.d_model, std_out)

    def forward(self, x, rope, mask):
        batch, length, _ = x.shape
        heads, kv_heads, dim = self.sizes.heads, self.sizes.kv_heads, self.sizes.head_dim
        # [batch, kv head, query head of its group x position, head dim]
        q = rotate(self.q_proj(x).view(batch, length, heads, dim), rope).transpose(1, 2)
        k = rotate(self.k_proj(x).view(batch, length, kv_heads, dim), rope).permute(0, 2, 3, 1)
        v = self.v_proj(x).view(batch, length, kv_heads, dim).transpose(1, 2)
        scores = q.reshape(batch, kv_heads, -1, dim) @ k / math.sqrt(dim)
        weights = (scores.view(batch, heads, length, length) + mask).softmax(-1)
        z = (weights.view(batch, kv_heads, -1, length) @ v).view(batch, heads, length, dim)
        return self.o_proj(z.transpose(1, 2).reshape(batch, length, heads * dim))


class Layer(nn.Module):
    def __init__(self, sizes, std, std_out):
        super().__init__()
        self.input_layernorm = Norm(sizes.d_model)
        self.self_attn = Attention(sizes, std, std_out)

    def forward(self, x, rope, mask):
        return x + self.self_attn(self.input_layernorm(x), rope, mask)


class Inner(nn.Module):
    def __init__(self, sizes, std, std_out):
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.vocab, sizes.d_model)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(sizes, std, std_out) for _ in range(sizes.layers))
        self.norm = Norm(sizes.d_model)


class Llama(nn.Module):
    """The table of tokens is the head too."""

    def __init__(self, sizes, std=0.06):
        super().__init__()
        self.sizes = sizes
        # What a layer adds begins small, in proportion to the number of additions.
        self.model = Inner(sizes, std, std / math.sqrt(2 * sizes.layers))
        frequencies = THETA ** (-torch.arange(0, sizes.head_dim, 2, dtype=torch.float64) / sizes.head_dim)
        angles = torch.outer(torch.arange(sizes.length, dtype=torch.float64), frequencies)
        self.cos, self.sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
        self.mask = torch.full((sizes.length, sizes.length), -torch.inf).triu(1)

    def forward(self, tokens):
        """tokens [batch, length] -> logits [batch, length, vocab]"""
        length = tokens.shape[1]
        rope, mask = (self.cos[:length], self.sin[:length]), self.mask[:length, :length]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, rope, mask)
        return self.model.norm(x) @ self.model.embed_tokens.weight.T


def rotate(x, rope):
    """RoPE of x [batch, length, heads, head dim]; component i rotates with i + head dim / 2."""
    cos, sin = rope
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def next_token_loss(model, tokens):
    """Mean loss in nats of predicting each token of [batch, length] from those before it."""
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def adamw(model):
    """AdamW that does not decay gains; `train_step` gives it the rate."""
    matrices = [weight for weight in model.parameters() if weight.ndim == 2]
    gains = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": gains, "weight_decay": 0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98))


def rate_at(step, steps, peak):
    """Rises for a tenth of the steps, stays, and falls to 0 in the last three tenths."""
    return peak * min(1, (step + 1) / (0.1 * steps), (steps - step) / (0.3 * steps))


def train_step(model, optimizer, rate, loss):
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()


def write_model(folder, model):
    """Writes config.json and model.safetensors, in float32."""
    sizes = model.sizes
    tensors = {name: weight.detach() for name, weight in model.named_parameters()}
    for layer in range(sizes.layers):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "post_attention_layernorm.weight"] = torch.ones(sizes.d_model)
        for name, shape in (
            ("gate", (MLP_WIDTH, sizes.d_model)),
            ("up", (MLP_WIDTH, sizes.d_model)),
            ("down", (sizes.d_model, MLP_WIDTH)),
        ):
            tensors[f"{prefix}mlp.{name}_proj.weight"] = torch.zeros(shape)
    write_checkpoint(folder, config_of(sizes), tensors)


def config_of(sizes):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.d_model,
        "head_dim": sizes.head_dim,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "intermediate_size": MLP_WIDTH,
        "max_position_embeddings": sizes.length,
        "hidden_act": "silu",
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
    }


def read_model(folder):
    """The model that `write_model` wrote, or headwise's `writeSafetensors`, in float32."""
    config = json.loads((folder / "config.json").read_text())
    sizes = Sizes(
        vocab=config["vocab_size"],
        layers=config["num_hidden_layers"],
        d_model=config["hidden_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        length=config["max_position_embeddings"],
    )
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    model = Llama(sizes)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            begin, end = (8 + length + offset for offset in header[name]["data_offsets"])
            weight.copy_(torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).view_as(weight))
    return model
