"""Checks that no two sequences of decisions give the same words: python3 exact.py [stories].

For each story, looks for every sequence of decisions whose words are those of the story, and expects one.
"""

import math
import sys

from grammar import Mix, Story
from teller import draws


class Differs(Exception):
    """The words so far are not those of the story."""


class Open(Exception):
    """The decisions do not go further; `choices` of the next one are possible."""

    def __init__(self, choices):
        super().__init__()
        self.choices = choices


def all_decisions(words, mix=Mix()):
    """[(decisions, nats)] of the stories that have these words."""

    def expect_same(story):
        if story.words[-1] != words[len(story.words) - 1]:
            raise Differs

    found, waiting = [], [[]]
    while waiting:
        decisions = waiting.pop()
        rest = iter(decisions)

        def follow(shares):
            for decision in rest:
                return decision
            raise Open(len(shares))

        try:
            found.append((decisions, Story(follow, mix, on_word=expect_same).nats))
        except Differs:
            continue
        except Open as gap:
            waiting.extend([*decisions, choice] for choice in range(gap.choices))
    return found


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for seed in range(count):
        story = Story(draws(f"exact {seed}"))
        found = all_decisions(story.words)
        assert len(found) == 1 and math.isclose(found[0][1], story.nats), (len(found), " ".join(story.words))
    print(f"{count} stories, each of one sequence of decisions")
