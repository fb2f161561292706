"""Trains attention-only decoders on sequences that repeat: python3 train.py --out FOLDER. `npm run study` calls it.

Writes checkpoints, the sequences to measure on, and PyTorch's loss on them at each checkpoint.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from llama import Llama, Sizes, adamw, next_token_loss, rate_at, train_step, write_model
from repeats import LENGTH, LONGEST, SHORTEST, VOCAB, entropy, repeated, two_copies

D_MODEL, HEADS = 64, 4
ROWS, STEPS, PEAK_RATE = 32, 1000, 3e-3
SEEDS = (1, 2, 3)
MEASURED_ROWS, MEASURED_SEED = 64, 1000


def is_checkpoint(step):
    """Often while the circuit forms."""
    return step % (10 if step <= 500 else 50) == 0


def train(layers, seed, measured, out):
    """Yields the loss on `measured` at each checkpoint."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = Llama(Sizes(VOCAB, layers, D_MODEL, HEADS, HEADS, LENGTH))
    optimizer = adamw(model)
    for step in range(STEPS + 1):
        if is_checkpoint(step):
            write_model(out / f"{layers}-{seed}-{step}", model)
            with torch.no_grad():
                loss = next_token_loss(model, measured).item()
            yield {"layers": layers, "seed": seed, "step": step, "loss": loss}
        train_step(model, optimizer, rate_at(step, STEPS, PEAK_RATE), next_token_loss(model, repeated(ROWS, generator)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    measured = two_copies(MEASURED_ROWS, MEASURED_SEED)
    checkpoints = []
    for layers in (2, 1):
        for seed in SEEDS:
            for each in train(layers, seed, measured, out):
                checkpoints.append(each)
                if each["step"] % 250 == 0:
                    print(f"{layers} layers, seed {seed}, step {each['step']:4}: loss {each['loss']:.3f}")
    setup = {
        "torch": torch.__version__,
        "seeds": SEEDS,
        "steps": STEPS,
        "dModel": D_MODEL,
        "heads": HEADS,
        "rows": ROWS,
        "length": LENGTH,
        "tokens": VOCAB,
        "shortest": SHORTEST,
        "segment": LONGEST,
    }
    described = {"setup": setup, "entropy": entropy(), "sequences": measured.tolist(), "checkpoints": checkpoints}
    (out / "training.json").write_text(json.dumps(described) + "\n")


if __name__ == "__main__":
    main()
