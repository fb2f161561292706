"""Trains the models of the study: python3 train.py FOLDER [--steps N]."""

import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
from copy_task import TASKS  # noqa: E402
from decoder import Decoder, HeadAttention  # noqa: E402
from trainer import read_options, train, write_models, write_trained, write_validation  # noqa: E402

SEEDS = (1, 2, 3, 4, 5)
EVERY = 20
GRID = [(layers, heads, "rope") for layers in (1, 2) for heads in (1, 2, 4, 8, 16)]
# What a head of 16 dimensions does without RoPE, and whether it is RoPE that one of 4 lacks.
OTHERS = [(layers, heads, kind) for heads, kind in ((4, "learned"), (4, "none"), (16, "learned")) for layers in (1, 2)]


def main():
    options = read_options(400)
    write_validation(options.folder, TASKS)
    groups, started = [], time.monotonic()
    for layers, heads, positions in GRID + OTHERS:

        def attention(seeds):
            return HeadAttention(seeds, layers, heads, heads, positions == "rope")

        def create(seeds):
            return Decoder(seeds, layers, attention, positions)

        decoder, curves = train(create, TASKS, SEEDS, options.steps, EVERY)
        name = f"{layers}-{heads}-{positions}"
        write_models(options.folder, decoder, TASKS, SEEDS, lambda task, seed: f"{name}-{task}-{seed}")
        for task, own in zip(TASKS, curves.split(len(SEEDS))):
            groups.append(
                {
                    "task": task,
                    "layers": layers,
                    "heads": heads,
                    "positions": positions,
                    "folders": [f"{name}-{task}-{seed}" for seed in SEEDS],
                    "curves": own.tolist(),
                }
            )
        last = "  ".join(f"{task} {own[:, -1].mean():.3f} bits" for task, own in zip(TASKS, curves.split(len(SEEDS))))
        print(f"{layers} layers, {heads} heads, {positions}: {last}  ({time.monotonic() - started:.0f} s)")
    write_trained(options.folder, SEEDS, options.steps, EVERY, groups)


if __name__ == "__main__":
    main()
