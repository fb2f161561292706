"""The decoder: Llama's block, in the sizes and names of its checkpoints."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from words import BEGIN, END, PAD, vocabulary

TOKENS = vocabulary()
ID_OF = {word: index for index, word in enumerate(TOKENS)}

LAYERS, D_MODEL, HEADS, KV_HEADS, HEAD_DIM, MLP_DIM = 4, 128, 8, 2, 16, 352
THETA, EPS, MAX_LENGTH = 10_000.0, 1e-5, 192

# As transformers writes it.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": ID_OF[BEGIN],
    "eos_token_id": ID_OF[END],
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": D_MODEL,
    "initializer_range": 0.02,
    "intermediate_size": MLP_DIM,
    "max_position_embeddings": MAX_LENGTH,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "pad_token_id": ID_OF[PAD],
    "rms_norm_eps": EPS,
    "rope_scaling": None,
    "rope_theta": THETA,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": len(TOKENS),
}


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D_MODEL))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * self.weight


def matrix(rows, columns):
    return nn.Linear(columns, rows, bias=False)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = matrix(HEADS * HEAD_DIM, D_MODEL)
        self.k_proj = matrix(KV_HEADS * HEAD_DIM, D_MODEL)
        self.v_proj = matrix(KV_HEADS * HEAD_DIM, D_MODEL)
        self.o_proj = matrix(D_MODEL, HEADS * HEAD_DIM)

    def forward(self, x, rope, mask, maps):
        batch, length, _ = x.shape
        group = HEADS // KV_HEADS
        # [batch, kv head, query head of its group x position, headDim]
        q = rotate(self.q_proj(x).view(batch, length, HEADS, HEAD_DIM), rope)
        k = rotate(self.k_proj(x).view(batch, length, KV_HEADS, HEAD_DIM), rope).permute(0, 2, 3, 1)
        v = self.v_proj(x).view(batch, length, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q = q.transpose(1, 2).reshape(batch, KV_HEADS, group * length, HEAD_DIM) / math.sqrt(HEAD_DIM)
        scores = (q @ k).view(batch, HEADS, length, length) + mask
        weights = scores.softmax(-1)
        if maps is not None:
            maps.append(weights)
        y = weights.view(batch, KV_HEADS, group * length, length) @ v
        y = y.view(batch, HEADS, length, HEAD_DIM).transpose(1, 2).reshape(batch, length, HEADS * HEAD_DIM)
        return self.o_proj(y)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = matrix(MLP_DIM, D_MODEL)
        self.up_proj = matrix(MLP_DIM, D_MODEL)
        self.down_proj = matrix(D_MODEL, MLP_DIM)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = Norm()
        self.self_attn = Attention()
        self.post_attention_layernorm = Norm()
        self.mlp = Mlp()

    def forward(self, x, rope, mask, maps):
        x = x + self.self_attn(self.input_layernorm(x), rope, mask, maps)
        return x + self.mlp(self.post_attention_layernorm(x))


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(len(TOKENS), D_MODEL)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()


class Decoder(nn.Module):
    """The table of tokens is the head too."""

    def __init__(self):
        super().__init__()
        self.model = Inner()
        positions = torch.arange(MAX_LENGTH, dtype=torch.float64)
        frequencies = THETA ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
        angles = torch.outer(positions, frequencies)
        self.cos, self.sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
        self.mask = torch.full((MAX_LENGTH, MAX_LENGTH), -torch.inf).triu(1)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                # What a layer adds begins small, in proportion to the number of additions.
                adds = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 if "embed" in name else 0.06 / (math.sqrt(2 * LAYERS) if adds else 1))

    def forward(self, tokens, maps=None):
        """tokens [batch, length] -> logits [batch, length, tokens]; appends each layer's weights to `maps`."""
        length = tokens.shape[1]
        rope, mask = (self.cos[:length], self.sin[:length]), self.mask[:length, :length]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, rope, mask, maps)
        return self.model.norm(x) @ self.model.embed_tokens.weight.T


def rotate(x, rope):
    """RoPE of x [batch, length, heads, headDim]; component i rotates with i + headDim / 2."""
    cos, sin = rope
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
