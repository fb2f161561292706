"""The files of the model, in the form in which transformers and tokenizers write them."""

import json
import struct

import torch

from model import CONFIG, ID_OF, TOKENS
from words import BEGIN, END, PAD, UNKNOWN

SPECIAL = (PAD, BEGIN, END, UNKNOWN)


def write_model(folder, model, metadata):
    """Rounds the weights of `model` to bf16, and writes them with the configuration and the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    (folder / "model.safetensors").write_bytes(safetensors(dict(model.named_parameters()), metadata))
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "tokenizer.json", tokenizer())
    write_json(folder / "tokenizer_config.json", TOKENIZER_CONFIG)


def write_json(path, value, indent=2):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def safetensors(tensors, metadata):
    header, data = {"__metadata__": {"format": "pt", "licence": "MIT", **metadata}}, b""
    for name, tensor in tensors.items():
        begin = len(data)
        data += tensor.detach().bfloat16().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def tokenizer():
    """Words and punctuation marks are tokens. The text begins with <s>; its end is the model's to say."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": ID_OF[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in SPECIAL
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                {"SpecialToken": {"id": BEGIN, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": [ID_OF[BEGIN]], "tokens": [BEGIN]}},
        },
        # Joins with spaces, but for those before punctuation marks.
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordLevel", "vocab": {token: index for index, token in enumerate(TOKENS)}, "unk_token": UNKNOWN},
    }


TOKENIZER_CONFIG = {
    "added_tokens_decoder": {
        str(ID_OF[token]): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for token in SPECIAL
    },
    "bos_token": BEGIN,
    "clean_up_tokenization_spaces": True,
    "eos_token": END,
    "model_max_length": CONFIG["max_position_embeddings"],
    "pad_token": PAD,
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": UNKNOWN,
}
