"""What a trained model can do, and which of its heads do it."""

import json
from dataclasses import dataclass
from itertools import islice

import torch
from torch.nn import functional as F

from files import write_json
from grammar import Story
from model import HEAD_DIM, HEADS, ID_OF, LAYERS, TOKENS
from teller import draws, is_held_out
from words import ANIMALS, BEGIN, END, QUALITY_OF, STATE_OF, SURFACES

PROMPT = "the cat sat on the mat because it was"
QUESTION = f"{PROMPT} soft . what was soft ? the"
LINES = ",\n"
# Places in both, behind <s>.
ANIMAL_AT, SURFACE_AT, IT_AT = 2, 6, 8
WATCHED = ("it is the surface", "it is the animal", "repeated word", "where the thing was", "what he or she had")


@dataclass
class Accuracy:
    hits: int = 0
    targets: int = 0
    chance: float = 0


def encode(text):
    return [ID_OF[word] for word in [BEGIN, *text.split()]]


def pad(rows):
    """Rows of words -> tokens [row, length of the longest], 0 behind the others."""
    tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, words in zip(tokens, rows):
        row[: len(words)] = torch.tensor([ID_OF[word] for word in words])
    return tokens


@torch.no_grad()
def likeliest(model, stories):
    """Yields each story with the likeliest word at each place, behind the one at which it is predicted."""
    ordered = iter(sorted(stories, key=lambda story: len(story.words)))
    while rows := list(islice(ordered, 64)):
        best = model(pad([story.words for story in rows])).argmax(-1)
        yield from ((story, [None, *(TOKENS[i] for i in row)]) for story, row in zip(rows, best.tolist()))


def accuracies(model, stories):
    """Accuracy of each probe, and that of a guess among the words that it could be."""
    found = {}
    for story, best in likeliest(model, stories):
        for word, probe, guess in zip(story.words, story.probes, best):
            if probe:
                each = found.setdefault(probe.name, Accuracy())
                each.targets += 1
                each.hits += guess == word
                each.chance += 1 / probe.choices
    return {name: Accuracy(each.hits, each.targets, each.chance / each.targets) for name, each in found.items()}


@torch.no_grad()
def information(model, stories):
    """Nats a token that the model needs, and those that the grammar gives the stories."""
    ordered, needed, given, count = iter(sorted(stories, key=lambda story: len(story.words))), 0.0, 0.0, 0
    while rows := list(islice(ordered, 64)):
        tokens = pad([story.words for story in rows])
        logits = model(tokens[:, :-1]).flatten(0, 1)
        needed += F.cross_entropy(logits, tokens[:, 1:].flatten(), ignore_index=0, reduction="sum").item()
        given += sum(story.nats for story in rows)
        count += sum(len(story.words) - 1 for story in rows)
    return needed / count, given / count, count


@torch.no_grad()
def continued(model, text, most=40):
    """The likeliest words behind a text, to the end of the story."""
    tokens = encode(text)
    begin = len(tokens)
    while len(tokens) < begin + most and tokens[-1] != ID_OF[END]:
        tokens.append(model(torch.tensor([tokens]))[0, -1].argmax().item())
    return " ".join(TOKENS[i] for i in tokens[begin:])


@torch.no_grad()
def maps_of(model, text):
    """Weights [layer, head, query, key] over <s> and the words of a text."""
    maps = []
    model(torch.tensor([encode(text)]), maps)
    return torch.cat(maps)


def look_backs(model):
    """Two tensors [pairs, 2, layer, head] over held-out pairs, after "sat on" and after "slept on".

    The weight from the last word of the question on the noun that "it" was, the surface and then the animal; and from
    "it" on the surface, where the words do not yet tell what it is.
    """
    answers, its = [], []
    for animal, surface in [(a, s) for a in ANIMALS for s in SURFACES if is_held_out("cause", a, s)]:
        maps = []
        for verb, quality in (("sat on", QUALITY_OF[surface]), ("slept on", STATE_OF[animal])):
            text = f"the {animal} {verb} the {surface} because it was {quality} . what was {quality} ? the"
            maps.append(maps_of(model, text))
        answers.append(torch.stack([maps[0][:, :, -1, SURFACE_AT], maps[1][:, :, -1, ANIMAL_AT]]))
        its.append(torch.stack([each[:, :, IT_AT, SURFACE_AT] for each in maps]))
    return torch.stack(answers), torch.stack(its)


def list_scores(model, stories):
    """[layer, head]: mean weight from each repeated word of a list on the word behind its first occurrence."""
    sums, count = torch.zeros(LAYERS, HEADS), 0
    for story in stories:
        places = [i for i, probe in enumerate(story.probes) if probe and probe.name == "repeated word"]
        if not places:
            continue
        maps = maps_of(model, " ".join(story.words[1:]))
        first = story.words.index("whispered") + 1
        for offset, place in enumerate(places[1:], 1):
            sums += maps[:, :, place - 1, first + offset]
            count += 1
    return sums / count


@torch.no_grad()
def without_head(model, layer, head, evaluate):
    """What `evaluate` returns with the head's output set to zero."""
    weight = model.model.layers[layer].self_attn.o_proj.weight
    columns = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    kept = weight[:, columns].clone()
    weight[:, columns] = 0
    result = evaluate()
    weight[:, columns] = kept
    return result


def measure(model, folder, report):
    needed, entropy, count = information(model, [Story(draws(f"fresh {i}")) for i in range(3000)])
    report(f"{needed:.4f} nats a token on {count} new ones, the grammar's entropy {entropy:.4f}: gap {needed - entropy:.4f}")

    held_out = [Story(draws(f"held out {i}"), mode="test") for i in range(1500)]
    report(f"{'held-out combinations, 1500 stories':37}accuracy  targets  chance")
    found = accuracies(model, held_out)
    for name, each in sorted(found.items()):
        report(f"  {name:35}{each.hits / each.targets:8.4f}  {each.targets:7}  {each.chance:6.3f}")

    report("after a text, the likeliest words:")
    for text in (PROMPT, PROMPT.replace("sat", "slept"), f"{PROMPT} soft .", QUESTION, "anna put the book in the"):
        report(f"  {text} | {continued(model, text)}")
    shares = model(torch.tensor([encode(PROMPT)]))[0, -1].softmax(-1).topk(4)
    report(f"  {PROMPT} | " + ", ".join(f"{TOKENS[i]} {p:.3f}" for p, i in zip(*map(torch.Tensor.tolist, shares))))

    answers, its = look_backs(model)
    layer, head = divmod(answers.mean((0, 1)).argmax().item(), HEADS)
    of_head = answers[:, :, layer, head]
    on_mat = maps_of(model, QUESTION)[layer, head, -1, SURFACE_AT]
    report(f"layer {layer} head {head} answers, over {len(answers)} held-out pairs of animal and surface:")
    for kind, noun in enumerate(("surface", "animal")):
        report(f"  weight on the {noun}: mean {of_head[:, kind].mean():.3f}, least {of_head[:, kind].min():.3f}")
    report(f"  {QUESTION} | {on_mat:.4f} on the mat")
    report_heads(model, answers.mean(0), its.mean(0), held_out[:60], report)

    write_held_out(folder / "heldout.json", model, held_out[:300])
    write_json(folder / "logits.json", describe_logits(model, layer, head), 1)


def report_heads(model, answers, its, stories, report):
    lists = list_scores(model, stories)
    report("weights: from the answer's place on the surface and on the animal; from it on the surface, after sat on and")
    report("after slept on; in a repeated list on the next word. Accuracies without the head: " + ", ".join(WATCHED))
    all_shares = shares_of(accuracies(model, stories))
    report(f"{'all heads':49}" + all_shares)
    for layer in range(LAYERS):
        for head in range(HEADS):
            without = without_head(model, layer, head, lambda: accuracies(model, stories))
            weights = [*answers[:, layer, head], *its[:, layer, head], lists[layer, head]]
            columns = "".join(f"{weight:7.3f}" for weight in weights)
            report(f"layer {layer} head {head}{columns}{shares_of(without)}")


def shares_of(found):
    return "".join(f"{found[name].hits / found[name].targets:8.3f}" for name in WATCHED)


def write_held_out(path, model, stories):
    """One story a line, with its probes as pairs of place and number of the name."""
    found = sorted(accuracies(model, stories).items())
    numbers = {name: number for number, (name, _) in enumerate(found)}
    counts = [
        {"name": name, "hits": each.hits, "targets": each.targets, "chance": round(each.chance, 4)} for name, each in found
    ]
    lines = [
        {
            "text": " ".join(story.words[1:-1]),
            "probes": [[i, numbers[probe.name]] for i, probe in enumerate(story.probes) if probe],
        }
        for story in stories
    ]
    note = "Stories of held-out combinations. A probe is a place, behind <s>, and the number of what predicting it takes."
    parts = [f'"{key}": [\n{LINES.join(map(json.dumps, value))}\n]' for key, value in (("probes", counts), ("stories", lines))]
    path.write_text(f'{{"note": {json.dumps(note)},\n' + LINES.join(parts) + "}\n")


def describe_logits(model, layer, head):
    with torch.no_grad():
        logits = model.double()(torch.tensor([encode(QUESTION)]))[0, -1]
    model.float()
    return {
        "note": "Logits behind the last token, computed in float64 from the weights of the file; the head that answers.",
        "prompt": QUESTION,
        "tokens": encode(QUESTION),
        "head": {"layer": layer, "head": head, "key": SURFACE_AT},
        "logits": [round(value, 9) for value in logits.tolist()],
    }
