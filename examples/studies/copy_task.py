"""The copy task: 0 x1 ... xn 0 x1 ... xn, where the tokens x are different ones of 1 to 31 in random order.

A model is asked for the second x1 ... xn. What to say follows from what was read, so the least loss is 0 bits; a guess among all
tokens takes log2(31) = 4.95. With a `fixed` length, the answer is always 10 tokens back. With a `varied` length, it is where the
present token was before, and one further.
"""

import math

import torch
from torch.nn import functional as F

VOCABULARY, SHORTEST, LONGEST = 32, 4, 10
LENGTH = 2 * (LONGEST + 1)
TASKS = ("fixed", "varied")
PADDING = -100  # what cross_entropy ignores


def draw(task, count, generator):
    """Tokens [count, LENGTH - 1] and what follows each, PADDING where it is not asked for."""
    order = torch.rand(count, VOCABULARY - 1, generator=generator).argsort(1) + 1
    block = torch.cat((torch.zeros(count, 1, dtype=torch.long), order[:, :LONGEST]), 1)
    shortest = LONGEST if task == "fixed" else SHORTEST
    period = torch.randint(shortest, LONGEST + 1, (count, 1), generator=generator) + 1
    at = torch.arange(LENGTH)
    # What lies behind the second block is read by no query that counts.
    tokens = block.gather(1, at % period)
    asked = (at > period) & (at < 2 * period)
    return tokens[:, :-1], tokens.masked_fill(~asked, PADDING)[:, 1:]


def bits(logits, targets):
    """Mean bits of a target, for each of the models stacked in logits [models, rows, LENGTH - 1, VOCABULARY]."""
    losses = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), ignore_index=PADDING, reduction="none")
    return losses.view(len(logits), -1).sum(1) / (targets != PADDING).flatten(1).sum(1) / math.log(2)
