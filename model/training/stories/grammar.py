"""Short stories from templates, with their exact probability.

Every random decision goes through `pick`, which adds -log p. No two sequences of decisions give the same words
(`exact.py` checks it), so that the sum over a story is its information in nats, and the mean over the stories' tokens the
entropy of the grammar: no model needs less.

A story in mode "train" holds no held-out combination; in mode "test" it holds one wherever there is one. Words that
what came before decides are marked with a probe, the name of what it takes to know them.
"""

from dataclasses import dataclass, field

from teller import Teller
from words import *

FRAMES = {
    "put": 3.5, "move": 0.8, "need": 2, "go": 1.4, "ask": 4.5,
    "cause": 1.6, "fit": 0.7, "give": 1, "agree": 0.7, "sound": 0.7, "own": 1.2, "count": 0.6, "compare": 1.2,
    "repeat": 0.5,
}  # fmt: skip
ONCE = ("cause", "fit", "give", "agree", "sound", "own", "count", "compare", "repeat")


@dataclass(frozen=True)
class Mix:
    """What stories are made of; stages of the training differ in it."""

    segments: tuple = (4, 7)
    weights: dict = field(default_factory=dict)
    two_things: float = 0.7
    two_owners: float = 1.0
    listed: tuple = (3, 4, 5)
    compared: tuple = tuple(MORE)


class Story(Teller):
    """A story from beginning to end: its words, their probes, and their information."""

    def __init__(self, choose, mix=Mix(), mode="train", on_word=None):
        super().__init__(choose, mode, on_word)
        self.mix, self.done, self.asked = mix, set(), set()
        self.last = self.fresh = None
        self.tell()

    def tell(self):
        if self.flip(0.4):
            self.say(self.pick(OPENINGS))
        least, most = self.mix.segments
        for count in range(1, most + 1):
            self.segment()
            if count >= least and self.flip(1 / (most - count + 1)):
                break
        self.say(END)

    def segment(self):
        possible = {
            "put": not self.stored and len(self.kinds()) < 4,
            "move": bool(self.stored),
            "need": bool(self.stored),
            # Two sentences of one segment would be the same words as one of each of two.
            "go": self.last != "go",
            "give": len(self.kinds()) < 5,
            "ask": bool(self.questions()),
        }
        weights = {**FRAMES, **self.mix.weights}
        if len(self.stored) == 1:
            weights["need"] *= 0.25
        names = [name for name in weights if possible.get(name, True) and name not in self.done and weights[name] > 0]
        name = self.pick(names, [weights[each] for each in names])
        if name in ONCE:
            self.done.add(name)
        self.last = name
        # A question left for later is not asked at once, which would be the same words as a question asked at once.
        fresh, self.fresh = self.fresh, None
        getattr(self, name)(*([fresh] if name == "ask" else []))

    # Where things are, and people

    def put(self):
        for _ in range(2 if self.flip(self.mix.two_things) else 1):
            name = self.person()
            self.say(f"{name} put the")
            thing = self.pick(self.unlike_things())
            self.used.add(thing)
            self.say(f"{thing} in the")
            container = self.pick(self.allowed("put", name + thing, self.free_containers()))
            self.say(f"{container} .")
            self.stored[thing] = container

    def move(self):
        name = self.person()
        self.say(f"{name} moved the")
        thing = self.pick(list(self.stored))
        self.say(f"{thing} to the")
        container = self.pick(self.allowed("put", name + thing, self.free_containers()))
        self.say(f"{container} .")
        self.stored[thing] = container
        self.asked.discard(thing)

    def need(self):
        name = self.person()
        self.say(f"{name} was")
        thing = self.pick(list(self.stored))
        self.say(f"{NEED_OF[thing]} , so")
        self.say(self.subject(name), "he or she", 2)
        self.say("opened the")
        self.say(self.stored[thing], "container of the needed thing", self.mentioned(CONTAINERS))
        self.say("and took the")
        self.say(thing, "needed thing", self.mentioned(OBJECTS))
        self.say(".")
        del self.stored[thing]
        self.held[thing] = name
        self.asked.discard(thing)

    def go(self):
        for name in self.two_people() if self.flip(self.mix.two_things) else (self.person(),):
            self.say(name)
            way = self.pick(WAYS)
            self.say(f"{way} the")
            places = [place for place in PLACES if place not in self.at.values()]
            place = self.pick(self.allowed("go", name + way, places))
            self.say(f"{place} .")
            self.at[name] = place
            self.asked.discard(name)

    def questions(self):
        """The kinds of question that can be asked, each with its subjects."""
        kinds = {"thing": self.stored, "person": self.at, "holder": self.held}
        new = {kind: [each for each in subjects if each not in self.asked] for kind, subjects in kinds.items()}
        new["fact"] = [fact for fact in self.facts if fact is not self.fresh]
        return {kind: subjects for kind, subjects in new.items() if subjects}

    def ask(self, fresh):
        self.fresh = fresh
        questions = self.questions()
        self.fresh = None
        kind = self.pick(list(questions))
        about = self.pick(questions[kind])
        self.asked.add(about)
        if kind == "thing":
            self.say(f"where was the {about} ? in the")
            self.say(self.stored[about], "where the thing was", self.mentioned(CONTAINERS))
        elif kind == "person":
            self.say(f"where was {about} ? in the")
            self.say(self.at[about], "where the person was", self.mentioned(PLACES))
        elif kind == "holder":
            self.say(f"who had the {about} ?")
            self.say(self.held[about], "who had the thing", len(self.cast))
        else:
            self.facts.remove(about)
            self.answer(*about)
            return
        self.say(".")

    def answer(self, question, answer, probe, choices):
        self.say(f"{question} ? the" if question.startswith("what") else f"{question} ?")
        self.say(answer, probe, choices)
        self.say(".")

    def ask_now_or_later(self, share, *fact):
        if self.flip(share):
            self.answer(*fact)
        else:
            self.facts.append(fact)
            self.fresh = fact

    # Pronouns

    def cause(self):
        self.say("the")
        animal = self.pick(ANIMALS)
        self.say(animal)
        verb = self.pick([*SITTING, *SLEEPING, LEAVING], (3, 2, 2, 2, 2, 2))
        self.say(f"{verb} the")
        surface = self.pick(self.allowed("cause", animal, SURFACES))
        self.say(f"{surface} because it")
        is_surface = self.flip(0.15 if verb in SLEEPING else 0.85)
        # After "was" the quality tells the noun. Other verbs depend on the noun, so that "it" itself has to find it.
        quality, state = QUALITY_OF[surface], STATE_OF[animal]
        if is_surface and verb == LEAVING:
            fact = "was " + self.pick(("wet", "dirty"))
        elif is_surface:
            fact = "was " + self.pick((quality, "clean"), (4, 1)) if self.flip(0.6) else SURFACE_VERB[quality]
        else:
            fact = "was " + self.pick((state, "hurt", "lazy"), (3, 1, 1)) if self.flip(0.6) else ANIMAL_VERB[state]
        self.say(f"{fact} .")
        probe = "it is the surface" if is_surface else "it is the animal"
        self.ask_now_or_later(0.6, f"what {fact}", surface if is_surface else animal, probe, 2)

    def fit(self):
        self.say("the")
        thing = self.pick([each for each in OBJECTS if each not in self.used])
        self.used.add(thing)
        self.say(f"{thing} did not fit in the")
        container = self.pick(self.allowed("fit", thing, self.free_containers()))
        self.used.add(container)
        self.say(f"{container} because it was too")
        size, noun = self.pick([(TOO_LARGE, thing), (TOO_SMALL, container)])
        adjective = self.pick(size)
        self.say(f"{adjective} .")
        self.ask_now_or_later(0.7, f"what was too {adjective}", noun, "what did not fit", 2)

    def give(self):
        giver, taker = self.two_people()
        self.say(f"{giver} gave the")
        thing = self.pick(self.allowed("give", giver + taker, self.unlike_things()))
        self.used.add(thing)
        self.say(f"{thing} to {taker} because")
        who = self.pick((giver, taker))
        adjective = self.pick(GIVERS) if who == giver else NEED_OF[thing]
        self.say(f"{self.subject(who)} was {adjective} .")
        self.held[thing] = taker
        same = self.subject(giver) == self.subject(taker)
        probe = "who it was, both he or both she" if same else "who it was, one he and one she"
        self.ask_now_or_later(0.7, f"who was {adjective}", who, probe, len(self.cast))

    def sound(self):
        name = self.person()
        self.say(f"{name} saw the")
        animal = self.pick(self.allowed("sound", name, ANIMALS))
        self.say(f"{animal} near the")
        self.say(self.pick(MARKS))
        self.say(". it")
        self.say(SOUND_OF[animal], "sound of the animal", len(SOUND_OF))
        self.say("at")
        self.say(self.object(name), "he or she", 2)
        self.say(".")

    # Who has what, and how many

    def own(self):
        owners = self.two_people() if self.flip(self.mix.two_owners) else (self.person(),)
        owned, first = {}, ""
        for name in owners:
            self.say(f"{name} had")
            free = [thing for thing in OWNED if thing not in self.used]
            # Triples are held out: of pairs a model learns that they never come.
            thing = self.pick(self.allowed("own", name + first, free) if first else free)
            self.used.add(thing)
            owned[name], first = thing, first or thing
            self.say(f"a {thing} .")
        told_apart = len({self.subject(name) for name in owners}) == len(owners)
        for name in owners if self.flip(0.5) else owners[::-1]:
            by_pronoun = told_apart and self.flip(0.6)
            self.say(self.subject(name) if by_pronoun else name)
            self.say(self.pick(LOSSES))
            self.say("the")
            self.say(owned[name], "what he or she had" if by_pronoun else "what the named person had", len(owners))
            self.say(".")

    def count(self):
        name, other = self.two_people()
        one, many = self.pick(list(COUNTED.items()))
        before = self.pick((2, 3, 4, 5))
        self.say(f"{name} had {NUMBERS[before]} {many} .")
        is_more = before == 2 or self.flip(0.6)
        kind = f"count {'+' if is_more else '-'}"
        change = self.pick(self.allowed(kind, f"{one} {before}", (1, 2, 3) if is_more else tuple(range(1, before))))
        if is_more:
            self.say(f"{other} gave")
            self.say(self.object(name), "he or she", 2)
        else:
            self.say(f"{self.subject(name)} lost")
        after = before + change if is_more else before - change
        self.say(f"{NUMBERS[change]} {one if change == 1 else many} . now")
        self.say(self.subject(name), "he or she", 2)
        self.say("had")
        self.say(NUMBERS[after], "sum or difference", len(NUMBERS) - 1)
        self.say(one if after == 1 else many, "singular or plural", 2)
        self.say(".")

    def compare(self):
        first, second = self.two_people()
        adjective = self.pick(self.allowed("compare", first + second, self.mix.compared))
        self.say(f"{first} was {adjective} than {second} .")
        asked = self.pick((adjective, OPPOSITE[adjective]))
        self.say(f"who was {asked} ?")
        self.say(first if asked == adjective else second, "who was more, who was less", 2)
        self.say(".")
        if self.flip(0.5):
            # Decided by elimination too, so it is no probe.
            self.say(f"who was {OPPOSITE[asked]} ? {second if asked == adjective else first} .")

    # Form

    def agree(self):
        one, many, preposition = self.pick(HEADS)
        plural, near_plural = self.flip(0.5), self.flip(0.5)
        self.say(f"the {many if plural else one} {preposition} the")
        near = self.pick(self.allowed(f"agree {plural} {near_plural}", one, list(ATTRACTORS)))
        self.say(ATTRACTORS[near] if near_plural else near)
        be = "were" if plural else "was"
        self.say(be, "was or were, nouns differ" if plural != near_plural else "was or were, nouns agree", 2)
        self.say(self.pick(LOOKS))
        self.say(".")
        if self.flip(0.5):
            self.say("they" if plural else "it")
            self.say(be, "was or were after the pronoun", 2)
            self.say(self.pick(COLOURS))
            self.say(".")

    def repeat(self):
        first, second = self.two_people()
        self.say(f"{first} whispered")
        listed = []
        for _ in range(self.pick(self.mix.listed)):
            listed.append(self.pick([word for word in LISTED if word not in listed]))
            self.say(listed[-1])
        self.say(f"to {second} . {second} repeated")
        for word in listed:
            self.say(word, "repeated word", len(LISTED))
        self.say(".")
