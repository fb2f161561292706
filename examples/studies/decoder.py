"""Decoders of attention alone, many of the same shape at once: every weight has the model as its first dimension.

The models share no arithmetic but the calls. Each has its own generator, so that a model comes from its seed alone.
"""

import math

import torch

from copy_task import LENGTH, VOCABULARY

D_MODEL, THETA = 64, 10_000.0
NORM_EPS, LATENT_EPS = 1e-5, 1e-6


def normals(seeds, shape, std):
    """[models, *shape], each model's from its generator."""
    return torch.stack([torch.randn(shape, generator=seed) * std for seed in seeds]).requires_grad_()


def norm(x, eps=NORM_EPS, centred=False):
    """RMS norm, or `centred` layer norm. Without gains and biases: what follows is a matrix that can learn the gains."""
    if centred:
        x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def linear(x, weight):
    """x [models, rows, length, in], weight [models, out, in]."""
    return (x.flatten(1, 2) @ weight.transpose(1, 2)).view(*x.shape[:3], -1)


def angles(dim):
    turns = THETA ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    both = torch.outer(torch.arange(LENGTH, dtype=torch.float64), turns)
    return both.cos().float(), both.sin().float()


def rotate(x, dim, interleaved=False):
    """RoPE of x [..., length, dim]: component i rotates with i + dim / 2, or with its neighbour."""
    cos, sin = (table[: x.shape[-2]] for table in angles(dim))
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    turned = (a * cos - b * sin, b * cos + a * sin)
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)


def attend(q, k, v):
    """q, k [..., heads, length, headDim] -> [models, rows, length, heads x valueDim]; one key head may serve a group of queries."""
    length = q.shape[-2]
    later = torch.full((length, length), -torch.inf).triu(1)
    weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + later).softmax(-1)
    return (weights @ v).transpose(2, 3).flatten(-2)


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(2, 3)


class HeadAttention:
    """MHA, GQA and MQA. `rope` may be off: a model then has positions in its table, or none."""

    def __init__(self, seeds, layers, heads, kv_heads, rope=True):
        self.heads, self.kv_heads, self.rope = heads, kv_heads, rope
        kv = D_MODEL // heads * kv_heads
        self.weights = {
            "q_proj": normals(seeds, (D_MODEL, D_MODEL), D_MODEL**-0.5),
            "k_proj": normals(seeds, (kv, D_MODEL), D_MODEL**-0.5),
            "v_proj": normals(seeds, (kv, D_MODEL), D_MODEL**-0.5),
            "o_proj": normals(seeds, (D_MODEL, D_MODEL), (2 * layers * D_MODEL) ** -0.5),
        }

    def __call__(self, x):
        w = self.weights
        q = split(linear(x, w["q_proj"]), self.heads)
        k, v = (split(linear(x, w[name]), self.kv_heads) for name in ("k_proj", "v_proj"))
        if self.rope:
            q, k = (rotate(each, D_MODEL // self.heads) for each in (q, k))
        group = self.heads // self.kv_heads
        if group > 1:
            k, v = (each.repeat_interleave(group, 2) for each in (k, v))
        return linear(attend(q, k, v), w["o_proj"])


class LatentAttention:
    """MLA: keys and values of all heads from a latent of `rank` floats, beside a rotated key that the heads share."""

    def __init__(self, seeds, layers, heads, rank, rope_dim):
        self.heads, self.rank, self.rope_dim, self.head_dim = heads, rank, rope_dim, D_MODEL // heads
        self.weights = {
            "q_proj": normals(seeds, (heads * (self.head_dim + rope_dim), D_MODEL), D_MODEL**-0.5),
            "kv_a_proj_with_mqa": normals(seeds, (rank + rope_dim, D_MODEL), D_MODEL**-0.5),
            "kv_b_proj": normals(seeds, (2 * D_MODEL, rank), rank**-0.5),
            "o_proj": normals(seeds, (D_MODEL, D_MODEL), (2 * layers * D_MODEL) ** -0.5),
        }

    def __call__(self, x):
        w, dims = self.weights, (self.head_dim, self.rope_dim)
        q, q_rotated = split(linear(x, w["q_proj"]), self.heads).split(dims, -1)
        latent, k_rotated = linear(x, w["kv_a_proj_with_mqa"]).split((self.rank, self.rope_dim), -1)
        k, v = split(linear(norm(latent, LATENT_EPS), w["kv_b_proj"]), self.heads).chunk(2, -1)
        turned = rotate(split(k_rotated, 1), self.rope_dim, True).expand(*k.shape[:-1], -1)
        q = torch.cat((q, rotate(q_rotated, self.rope_dim, True)), -1)
        return linear(attend(q, torch.cat((k, turned), -1), v), w["o_proj"])


class Decoder:
    """Layers that `attention(seeds)` makes, between a table of tokens and a head.

    What carries positions is that of a family of models: RoPE with RMS norms (Llama), a table that is "learned" with layer norms
    (GPT-2), or "none", which is such a table of zeros.
    """

    def __init__(self, seeds, layers, attention, positions="rope"):
        self.kind = positions
        self.embed = normals(seeds, (VOCABULARY, D_MODEL), 1)
        self.positions = torch.zeros(len(seeds), LENGTH, D_MODEL)
        if positions == "learned":
            self.positions = normals(seeds, (LENGTH, D_MODEL), 1)
        self.layers = [attention(seeds) for _ in range(layers)]
        self.head = normals(seeds, (VOCABULARY, D_MODEL), D_MODEL**-0.5)

    def parameters(self):
        weights = [weight for layer in self.layers for weight in layer.weights.values()]
        return [self.embed, self.head, *weights] + ([self.positions] if self.kind == "learned" else [])

    def __call__(self, tokens):
        """tokens [models, rows, length] -> logits [models, rows, length, VOCABULARY]."""
        centred = self.kind != "rope"
        x = self.embed[torch.arange(len(tokens))[:, None, None], tokens]
        if centred:
            x = x + self.positions[:, None, : tokens.shape[-1]]
        for layer in self.layers:
            x = x + layer(norm(x, centred=centred))
        return linear(norm(x, centred=centred), self.head)
