"""Trains decoders, and converted ones a little further: python3 train.py base|uptrain --out FOLDER.

`npm run study` calls it with "base", converts what it wrote, and calls it with "uptrain".
"""

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from llama import Llama, Sizes, adamw, next_token_loss, rate_at, read_model, train_step, write_model
from repeats import LENGTH, LONGEST, VOCAB, entropy, repeated, two_copies

# As the models of two layers of induction-formation: the same seeds give the same weights.
LAYERS, D_MODEL, HEADS = 2, 64, 4
# 5 % of the steps again, as Ainslie et al. (2023).
ROWS, STEPS, UP_STEPS = 32, 1000, 50
PEAK_RATE, UP_RATE = 3e-3, 1e-3
SEEDS = (1, 2, 3)
MEASURED_ROWS, MEASURED_SEED = 64, 1000


def train(model, generator, steps, peak):
    optimizer = adamw(model)
    for step in range(steps):
        train_step(model, optimizer, rate_at(step, steps, peak), next_token_loss(model, repeated(ROWS, generator)))


def train_base(out):
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = Llama(Sizes(VOCAB, LAYERS, D_MODEL, HEADS, HEADS, LENGTH))
        train(model, torch.Generator().manual_seed(seed), STEPS, PEAK_RATE)
        write_model(out / f"{seed}/mha", model)
        print(f"seed {seed}: trained for {STEPS} steps")
    setup = {
        "torch": torch.__version__,
        "seeds": SEEDS,
        "steps": STEPS,
        "upSteps": UP_STEPS,
        "upRate": UP_RATE,
        "layers": LAYERS,
        "dModel": D_MODEL,
        "heads": HEADS,
        "rows": ROWS,
        "segment": LONGEST,
    }
    described = {
        "setup": setup,
        "entropy": entropy(),
        "sequences": two_copies(MEASURED_ROWS, MEASURED_SEED).tolist(),
    }
    (out / "training.json").write_text(json.dumps(described) + "\n")


@torch.no_grad()
def loss_of(model):
    return next_token_loss(model, two_copies(MEASURED_ROWS, MEASURED_SEED)).item()


def uptrain(out):
    """Each model of FOLDER/seed: the loss before, some steps, the loss after."""
    losses = {}
    for seed in SEEDS:
        for folder in sorted((out / str(seed)).iterdir()):
            model, name = read_model(folder), f"{seed}/{folder.name}"
            losses[name] = loss_of(model)
            # The same sequences for all models of a seed, none of which their base has read.
            train(model, torch.Generator().manual_seed(100 + seed), UP_STEPS, UP_RATE)
            write_model(out / f"{name}-up", model)
            losses[f"{name}-up"] = loss_of(model)
            print(f"seed {seed}, {folder.name}: loss {losses[name]:.3f}, after {UP_STEPS} steps {losses[f'{name}-up']:.3f}")
    (out / "losses.json").write_text(json.dumps(losses) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("base", "uptrain"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    (train_base if options.part == "base" else uptrain)(options.out)


if __name__ == "__main__":
    main()
