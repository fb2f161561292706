"""Sequences that repeat: a segment of random tokens, again and again.

What a token is cannot be foreseen in the first copy, but for its frequency, and follows from the context in the others.
"""

import torch

VOCAB, LENGTH = 128, 64
SHORTEST, LONGEST = 8, 32


def frequencies():
    """Of the tokens: falling slowly, as those of words do."""
    shares = 1 / (torch.arange(VOCAB) + 8.0)
    return shares / shares.sum()


def entropy():
    """Nats of a token that only its frequency tells."""
    return -(frequencies() * frequencies().log()).sum().item()


def repeated(rows, generator, shortest=SHORTEST):
    """Sequences [rows, LENGTH] of segments of `shortest` to LONGEST tokens."""
    segments = torch.multinomial(frequencies().expand(rows, -1), LONGEST, True, generator=generator)
    lengths = torch.randint(shortest, LONGEST + 1, (rows, 1), generator=generator)
    return segments.gather(1, torch.arange(LENGTH) % lengths)


def two_copies(rows, seed):
    """Sequences [rows, LENGTH] to measure on: segments of LONGEST tokens, twice."""
    return repeated(rows, torch.Generator().manual_seed(seed), LONGEST)
