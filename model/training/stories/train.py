"""Trains the model of ../../stories: python3 train.py --seed 1 --work FOLDER.

Writes the model's files and its output (result.txt); checkpoints go to the folder of --work.
"""

import argparse
import random
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from drill import IN_PLACES, OF_PEOPLE, Drill
from files import write_model
from grammar import Mix, Story
from measure import accuracies, measure, pad
from model import Decoder
from teller import draws
from words import OPPOSITE

HERE = Path(__file__).parent
ROWS = 32
POOL = 32 * ROWS
PEAK_RATE, WARM_UP = 2e-3, 100

# What is rare in a full story is frequent here. Without it, comparing stays at chance for thousands of steps.
DRILL = {"own": 3, "compare": 3, "put": 8, "go": 3, "ask": 12, "need": 5}
BOTH = tuple(OPPOSITE)
# One thing and one owner teach to look something up; two teach what belongs to what.
STAGES = [
    ("one of each", 1200, Mix((2, 3), DRILL, two_things=0.3, two_owners=0.4, compared=BOTH)),
    ("two of each", 1800, Mix((2, 3), DRILL, two_things=1, compared=BOTH)),
    ("longer", 1200, Mix((3, 6), {"own": 2, "compare": 2, "repeat": 2}, 0.9, listed=(4, 6, 8), compared=BOTH)),
    ("full", 1400, Mix(weights={"put": 6, "ask": 8}, two_things=0.4, compared=BOTH)),
    ("places", 500, IN_PLACES),
    ("people", 250, OF_PEOPLE),
    ("comparing", 900, Mix((1, 2), {"compare": 30, "own": 20, "give": 4, "go": 10, "ask": 20})),
    ("settling", 1600, Mix()),
]


def batches(seed, stage, mix):
    """Rows of similar length, in random order: little padding."""
    kind = Story if isinstance(mix, Mix) else Drill
    shuffle = random.Random(f"order {seed} {stage}").shuffle
    count = 0
    while True:
        chosen = (draws(f"train {seed} {stage} {count + i}") for i in range(POOL))
        stories = sorted((kind(choose, mix).words for choose in chosen), key=len)
        count += POOL
        rows = [stories[i : i + ROWS] for i in range(0, POOL, ROWS)]
        shuffle(rows)
        yield from map(pad, rows)


def rate_at(step, steps, decay_from):
    """Rises, stays, and falls to 0 in the last stage."""
    if step <= WARM_UP:
        return PEAK_RATE * step / WARM_UP
    return PEAK_RATE * min(1, (steps - step) / (steps - decay_from))


def create_optimizer(model):
    matrices = [weight for weight in model.parameters() if weight.ndim == 2]
    gains = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98))


def train(seed, scale, work, resume, report):
    torch.manual_seed(seed)
    model = Decoder()
    optimizer = create_optimizer(model)
    if resume:
        saved = torch.load(work / f"{seed} {resume}.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    stages = [(name, round(steps * scale), mix) for name, steps, mix in STAGES]
    all_steps = sum(steps for _, steps, _ in stages)
    decay_from = all_steps - stages[-1][1]
    report(f"seed {seed}, {sum(w.numel() for w in model.parameters())} parameters, {all_steps} steps of {ROWS} stories")
    done = [name for name, _, _ in stages].index(resume) + 1 if resume else 0
    step, started, losses = sum(steps for _, steps, _ in stages[:done]), time.monotonic(), []
    for name, steps, mix in stages[done:]:
        rows = batches(seed, name, mix)
        for _ in range(steps):
            step += 1
            tokens = next(rows)
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, all_steps, decay_from)
            optimizer.step()
            losses.append(loss.item())
            if step % 300 == 0 or step == all_steps:
                report(
                    f"step {step:5}  {name:12} loss {sum(losses) / len(losses):.4f}  "
                    f"{time.monotonic() - started:5.0f} s  {weakest(model)}"
                )
                losses = []
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, work / f"{seed} {name}.pt")
    report(f"trained in {(time.monotonic() - started) / 60:.1f} minutes")
    return model


def weakest(model):
    """The four probes with the lowest accuracy on a few held-out stories."""
    found = accuracies(model, [Story(draws(f"watch {i}"), mode="test") for i in range(100)])
    shares = sorted((each.hits / each.targets, name) for name, each in found.items())
    return ", ".join(f"{name} {share:.2f}" for share, name in shares[:4])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1, help="share of the steps, for a trial")
    parser.add_argument("--work", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--out", type=Path, default=HERE / "../../stories")
    parser.add_argument("--result", type=Path, default=HERE / "result.txt")
    parser.add_argument("--resume", help="the last stage whose checkpoint is there: goes on behind it, to the same weights")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []

    def report(line):
        print(line, flush=True)
        lines.append(line)

    options.work.mkdir(parents=True, exist_ok=True)
    model = train(options.seed, options.scale, options.work, options.resume, report)
    write_model(options.out, model, {"seed": str(options.seed)})
    # From here on the weights are those of the file, rounded to bf16.
    measure(model, options.out, report)
    options.result.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
