"""Makes this folder: for each family of models a tiny one with random weights, and its logits by transformers in float64;
of encoders, the last hidden states, or the logits of their heads for masked tokens.

    pip install torch transformers==5.24.0 && python3 test/vectors/families/make.py [NAME...]

writes index.json and a folder a model: config.json and model.safetensors as transformers saves them, and case.safetensors
with a prompt, given tokens behind it and greedy ones, or with the tokens of a text. Weights are float16, so that float32 and float64 hold the same.
Another version of PyTorch may draw other weights: commit all that a run writes.
"""

import json
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
sys.dont_write_bytecode = True

from cases import store
from cases.store import container
from models import MODELS

PROMPT, GIVEN, STEPS, TEXT = 11, 4, 5, 24
torch.set_default_dtype(torch.float64)


def draw(model, seed):
    """Weights that make every part count: matrices of about unit gain, vectors around what they begin with."""
    random = torch.Generator().manual_seed(seed)
    uniform = lambda like: torch.rand(like.shape, generator=random, dtype=torch.float64) * 2 - 1
    with torch.no_grad():
        for name, each in sorted(model.state_dict(keep_vars=True).items()):
            # MiniMax stores what follows from its configuration.
            if name.endswith(("slope_rate", "_decay")):
                continue
            if not each.is_floating_point() or each.ndim == 0 or each.numel() == 0:
                continue
            if each.ndim >= 2:
                each.copy_(uniform(each) * 2 * each.shape[-1] ** -0.5)
            elif each.requires_grad or each.abs().max() == 0:
                each.add_(uniform(each) * 0.25)
            each.copy_(each.half().double())


def logits_of(model, ids):
    """All logits of a sequence, without a cache."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].numpy()


def encoded(name, model, ids):
    """The case of an encoder, or of one with a head for masked tokens."""
    with torch.no_grad():
        found = model(input_ids=torch.tensor([ids]))
    if hasattr(found, "logits"):
        op, outputs = "MaskedLM", {"logits": found.logits.numpy()}
    else:
        states = found.last_hidden_state.numpy()
        op, outputs = "Encoder", {"last_hidden_state": states, "cls": states[:, 0], "mean_pooled": states.mean(1)}
    most = max(np.abs(value).max() for value in outputs.values())
    store.case(
        "families", op, name, {}, {"input_ids": np.array([ids], np.int32)}, outputs, tolerance=float(f"{1e-4 * most:.1e}"),
        folder=name,
    )
    return most


def make(name, config):
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    kind = config.pop("class", None)
    auto = config.pop("auto", "AutoModelForCausalLM")
    spec = transformers.AutoConfig.for_model(**config)
    # The faster forms are not made for float64.
    spec._attn_implementation = spec._experts_implementation = "eager"
    model = (getattr(transformers, kind)(spec) if kind else getattr(transformers, auto).from_config(spec)).eval()
    draw(model, seed)
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        written = json.loads((Path(saved) / "config.json").read_text())
        weights = {key: value.half().numpy() for key, value in load_file(f"{saved}/model.safetensors").items()}
    for each in (written, *(v for v in written.values() if isinstance(v, dict))):
        for key in ("dtype", "transformers_version"):
            each.pop(key, None)
    (folder / "config.json").write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
    (folder / "model.safetensors").write_bytes(container(weights))
    vocabulary = spec.get_text_config().vocab_size
    store.HERE = HERE
    random = np.random.default_rng(seed)
    size = sum(value.nbytes for value in weights.values())
    if auto != "AutoModelForCausalLM":
        most = encoded(name, model, random.integers(5, vocabulary, TEXT).tolist())
        print(f"{name}: {size} bytes of weights, outputs up to {most:.3g}")
        return
    ids = random.integers(5, vocabulary, PROMPT + GIVEN).tolist()
    both = logits_of(model, ids)
    sequence = ids[:PROMPT]
    for _ in range(STEPS):
        sequence = sequence + [int(logits_of(model, sequence)[-1].argmax())]
    row = lambda values: np.array(values, np.int32)[None]
    bound = 1e-4 * np.abs(both).max()
    store.case(
        "families", "CausalLM", name, {},
        {"input_ids": row(ids[:PROMPT]), "decode_ids": row(ids[PROMPT:])},
        {"logits": both[None, :PROMPT], "logits_decode": both[None, PROMPT:], "greedy": row(sequence[PROMPT:])},
        tolerance=float(f"{bound:.1e}"), copies=("greedy",), folder=name,
    )
    print(f"{name}: {size} bytes of weights, logits up to {np.abs(both).max():.3g}")


chosen = sys.argv[1:] or list(MODELS)
for name in chosen:
    make(name, dict(MODELS[name]))
if not sys.argv[1:]:
    lines = ",\n".join(json.dumps(entry, sort_keys=True, ensure_ascii=True) for entry in store.CASES)
    (HERE / "index.json").write_text(f'{{"format":1,"cases":[\n{lines}\n]}}\n')
