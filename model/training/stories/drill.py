"""An exercise: what belongs to what, of three or four, in few words.

In a story one of two people is asked for, and then the other, whose answer is the one that is left. That is too little to
learn from which of the two places or things was whose. Here it takes more than what is left, and it is asked often. The
forms lead from what stories teach well, the container of a thing, to what they do not: names take the place of things
after "the", then they stand alone, and places that of containers.
"""

from dataclasses import dataclass

from teller import Teller
from words import CONTAINERS, LOSSES, NAMES, OBJECTS, OWNED, PLACES, WAYS


@dataclass(frozen=True)
class Form:
    """How it is said of which words, and asked; `kind` is the kind of combination that may be held out."""

    kind: str
    statement: str
    question: str
    subjects: list
    answers: list


WHERE_THE, WHERE = "where was the {subject} ? in the", "where was {subject} ? in the"
WENT = "{subject} {way} the {answer} ."
HAD, LOST = "{subject} had a {answer} .", "{subject} {loss} the"
GO = Form("go", WENT, WHERE, NAMES, PLACES)
IN_PLACES = (
    Form("put", "{other} put the {subject} in the {answer} .", WHERE_THE, OBJECTS, CONTAINERS),
    Form("go", "the " + WENT, WHERE_THE, OBJECTS, PLACES),
    Form("go", "the " + WENT, WHERE_THE, NAMES, CONTAINERS),
    Form("go", WENT, WHERE, NAMES, CONTAINERS),
    GO,
)
OF_PEOPLE = (
    GO,
    Form("go", WENT, LOST, NAMES, PLACES),
    Form("own", HAD, WHERE, NAMES, OWNED),
    Form("own", HAD, LOST, NAMES, OWNED),
)


class Drill(Teller):
    """Statements of one form, and as many questions, each about any of them."""

    def __init__(self, choose, forms):
        super().__init__(choose, "train", None)
        form, other, answers = self.pick(forms), self.pick(NAMES), {}
        for _ in range(self.pick((3, 4))):
            subject = self.pick([each for each in form.subjects if each not in answers])
            way = self.pick(WAYS)
            free = [each for each in form.answers if each not in answers.values()]
            given = {"put": [other], "go": [way], "own": answers.values()}[form.kind]
            for each in given:
                free = self.allowed(form.kind, each + subject if form.kind == "put" else subject + each, free)
            answers[subject] = self.pick(free)
            self.say(form.statement.format(subject=subject, answer=answers[subject], other=other, way=way))
        for _ in answers:
            subject = self.pick(list(answers))
            self.say(form.question.format(subject=subject, loss=self.pick(LOSSES)))
            self.say(f"{answers[subject]} .")
