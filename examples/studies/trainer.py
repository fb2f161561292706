"""Trains a model for each pair of a task and a seed, all at once, and writes their checkpoints."""

import argparse
import json
from pathlib import Path

import torch

from checkpoint import safetensors, write_checkpoint
from copy_task import LONGEST, SHORTEST, VOCABULARY, bits, draw
from decoder import D_MODEL
from families import checkpoint_of

ROWS, VALIDATION_ROWS, VALIDATION_SEED = 24, 128, 0
RATE, WARM_UP = 4e-3, 50


def read_options(steps):
    """FOLDER [--steps N] of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=steps)
    torch.set_num_threads(1)
    return parser.parse_args()


def train(create, tasks, seeds, steps, every):
    """`create(generators)` makes the stacked models. Returns them, and for each its validation loss in bits after every `every` steps."""
    jobs = [(task, seed) for task in tasks for seed in seeds]
    generators = [torch.Generator().manual_seed(seed) for _, seed in jobs]
    decoder = create(generators)
    optimizer = torch.optim.Adam(decoder.parameters(), betas=(0.9, 0.98))
    tokens, targets = stack(validation(task) for task, _ in jobs)
    curves = []
    for step in range(steps + 1):
        if step % every == 0:
            with torch.no_grad():
                curves.append(bits(decoder(tokens), targets))
        if step == steps:
            break
        batch, wanted = stack(draw(task, ROWS, generator) for (task, _), generator in zip(jobs, generators))
        # Each model's loss has a gradient in its own weights alone.
        loss = bits(decoder(batch), wanted).sum()
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM_UP, 2 * (1 - step / steps))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return decoder, torch.stack(curves, 1)


def stack(pairs):
    tokens, targets = zip(*pairs)
    return torch.stack(tokens), torch.stack(targets)


def validation(task):
    return draw(task, VALIDATION_ROWS, torch.Generator().manual_seed(VALIDATION_SEED))


def write_validation(folder, tasks):
    """What models are measured on: {task: {tokens, targets}}."""
    folder.mkdir(parents=True, exist_ok=True)
    sets = {task: dict(zip(("tokens", "targets"), (each.tolist() for each in validation(task)))) for task in tasks}
    (folder / "validation.json").write_text(json.dumps(sets))


def write_models(folder, decoder, tasks, seeds, name_of):
    """A folder for each model: its checkpoint, and the logits that it has here on the validation set."""
    jobs = [(task, seed) for task in tasks for seed in seeds]
    with torch.no_grad():
        logits = decoder(torch.stack([validation(task)[0] for task, _ in jobs]))
        for index, (task, seed) in enumerate(jobs):
            own = folder / name_of(task, seed)
            write_checkpoint(own, *checkpoint_of(decoder, index))
            (own / "logits.safetensors").write_bytes(safetensors({"logits": logits[index]}))


def write_trained(folder, seeds, steps, every, groups):
    """What the models are, for the page of the study, and where they are."""
    setup = {
        "torch": torch.__version__,
        "seeds": seeds,
        "steps": steps,
        "every": every,
        "rows": ROWS,
        "rate": RATE,
        "validationRows": VALIDATION_ROWS,
        "dModel": D_MODEL,
        "tokens": VOCABULARY - 1,
        "shortest": SHORTEST,
        "longest": LONGEST,
    }
    (folder / "trained.json").write_text(json.dumps({"setup": setup, "groups": groups}))
