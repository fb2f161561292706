"""What every frame of the grammar uses: decisions, words, people and things."""

import math
import random
import zlib
from dataclasses import dataclass

from words import *


@dataclass(frozen=True)
class Probe:
    """A decided word: what it takes to know it, and the number of words that a guess would choose from."""

    name: str
    choices: int


def is_held_out(kind, given, item):
    """About one combination in eight never comes in training; those of the best known sentence are among them."""
    if (kind, given, item) == ("cause", "cat", "mat"):
        return True
    return zlib.crc32(f"{kind}|{given}|{item}".encode()) % 8 == 0


def draws(seed):
    """Chooses by a seeded generator of random numbers."""
    uniform = random.Random(seed).random

    def choose(shares):
        left = uniform()
        for index, share in enumerate(shares):
            left -= share
            if left < 0:
                return index
        return len(shares) - 1

    return choose


class Teller:
    """words[i] has probes[i], a Probe or None; `nats` is the information of all of them."""

    def __init__(self, choose, mode, on_word):
        self.choose, self.mode, self.on_word = choose, mode, on_word
        self.words, self.probes, self.nats = [BEGIN], [None], 0.0
        # Where things are and who has them, where people are, and the facts that may still be asked.
        self.cast, self.used, self.stored, self.held, self.at, self.facts = [], set(), {}, {}, {}, []

    # Decisions and words

    def pick(self, items, weights=None):
        total = sum(weights) if weights else len(items)
        shares = [weight / total for weight in weights] if weights else [1 / total] * len(items)
        index = self.choose(shares) if len(items) > 1 else 0
        self.nats -= math.log(shares[index])
        return items[index]

    def flip(self, share):
        if share in (0, 1):
            return bool(share)
        return self.pick((True, False), (share, 1 - share))

    def say(self, text, probe=None, choices=0):
        for word in text.split():
            self.words.append(word)
            self.probes.append(Probe(probe, choices) if probe else None)
            if self.on_word:
                self.on_word(self)

    def allowed(self, kind, given, items):
        """The items that this mode may combine with `given`."""
        held_out = [item for item in items if is_held_out(kind, given, item)]
        if self.mode == "test" and held_out:
            return held_out
        rest = [item for item in items if item not in held_out]
        assert rest, f"{kind} {given}: every combination is held out"
        return rest

    # People and things

    def person(self):
        if len(self.cast) == 2:
            return self.pick(self.cast)
        if self.cast and self.flip(0.5):
            return self.cast[0]
        return self.newcomer()

    def newcomer(self):
        name = self.pick([name for name in NAMES if name not in self.cast])
        self.cast.append(name)
        return name

    def two_people(self):
        first = self.person()
        second = self.newcomer() if len(self.cast) == 1 else next(name for name in self.cast if name != first)
        return first, second

    def subject(self, name):
        return "he" if name in MALE else "she"

    def object(self, name):
        return "him" if name in MALE else "her"

    def kinds(self):
        return {NEED_OF[thing] for thing in self.used if thing in NEED_OF}

    def unlike_things(self):
        """Things unused in the story, of a need that no used one has: "was hungry" then means one of them only."""
        return [thing for thing in OBJECTS if thing not in self.used and NEED_OF[thing] not in self.kinds()]

    def free_containers(self):
        return [each for each in CONTAINERS if each not in self.stored.values() and each not in self.used]

    def mentioned(self, words):
        return len({word for word in self.words if word in words})
