"""Trains the models of the study: python3 train.py FOLDER [--steps N]."""

import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
from decoder import Decoder, HeadAttention, LatentAttention  # noqa: E402
from trainer import read_options, train, write_models, write_trained, write_validation  # noqa: E402

TASKS, SEEDS = ("varied",), (1, 2, 3)
LAYERS, HEADS, ROPE_DIM = 2, 8, 4
EVERY = 50
# With 4 rotated floats, 11 is the last rank below an eighth of MHA's 128 floats a token, and 12 takes an eighth.
RANKS = (4, 6, 8, 11, 12, 16, 24, 32)


def variants():
    for name, kv_heads in (("MHA", 8), ("GQA 4", 4), ("GQA 2", 2), ("MQA", 1)):
        yield name, None, lambda seeds, own=kv_heads: HeadAttention(seeds, LAYERS, HEADS, own)
    for rank in RANKS:
        yield f"MLA {rank}", rank, lambda seeds, own=rank: LatentAttention(seeds, LAYERS, HEADS, own, ROPE_DIM)


def main():
    options = read_options(900)
    write_validation(options.folder, TASKS)
    groups, started = [], time.monotonic()
    for name, rank, attention in variants():
        decoder, curves = train(
            lambda seeds: Decoder(seeds, LAYERS, attention), TASKS, SEEDS, options.steps, EVERY
        )
        folders = [f"{name} {seed}".replace(" ", "-").lower() for seed in SEEDS]
        write_models(options.folder, decoder, TASKS, SEEDS, lambda _, seed: folders[SEEDS.index(seed)])
        groups.append({"task": TASKS[0], "name": name, "rank": rank, "folders": folders, "curves": curves.tolist()})
        print(f"{name}: {curves[:, -1].mean():.3f} bits  ({time.monotonic() - started:.0f} s)")
    write_trained(options.folder, SEEDS, options.steps, EVERY, groups)


if __name__ == "__main__":
    main()
