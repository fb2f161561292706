"""The words of the stories, by class."""

MALE = "tom bill sam jack ben max leo paul tim dan peter john mark fred".split()
FEMALE = "anna mary sue kate lucy emma jane rose ella nina lily ruth sara alice".split()
NAMES = MALE + FEMALE

# What one needs a thing for: the adjective tells the thing, and the thing the adjective.
THINGS = {
    "hungry": "apple cake pear cookie carrot banana sandwich pie".split(),
    "thirsty": "milk juice water tea lemonade".split(),
    "cold": "coat hat scarf jumper shawl".split(),
    "bored": "ball doll kite drum puzzle game".split(),
    "sick": "medicine pill syrup".split(),
    "curious": "book letter map photo".split(),
}
NEED_OF = {thing: need for need, things in THINGS.items() for thing in things}
OBJECTS = list(NEED_OF)
OWNED = "ball doll kite drum puzzle game book map coat pie hat scarf".split()
LOSSES = "lost hid sold cleaned".split()

CONTAINERS = "box bag basket drawer cupboard chest bucket case tin crate trunk suitcase".split()
PLACES = "garden park kitchen shop market forest barn library hall cellar attic field tower stable".split()
WAYS = ["went to", "walked to", "ran to"]

SURFACES_BY_QUALITY = {
    "soft": "mat rug sofa cushion bed pillow".split(),
    "warm": "stone wall roof step".split(),
    "dry": "bench log chair deck".split(),
    "cool": "grass floor path".split(),
}
QUALITY_OF = {surface: quality for quality, surfaces in SURFACES_BY_QUALITY.items() for surface in surfaces}
SURFACES = list(QUALITY_OF)
SURFACE_VERB = {"soft": "felt soft", "warm": "held heat", "dry": "stayed dry", "cool": "kept cool"}

ANIMALS_BY_STATE = {
    "tired": "dog horse goat wolf".split(),
    "sleepy": "cat rabbit mouse hen".split(),
    "sore": "bear duck fox bird".split(),
}
STATE_OF = {animal: state for state, animals in ANIMALS_BY_STATE.items() for animal in animals}
ANIMALS = list(STATE_OF)
ANIMAL_VERB = {"tired": "needed rest", "sleepy": "wanted sleep", "sore": "had sore feet"}
SOUND_OF = {
    "dog": "barked", "cat": "purred", "duck": "quacked", "horse": "neighed", "bird": "sang", "mouse": "squeaked",
    "wolf": "howled", "bear": "growled", "hen": "clucked", "goat": "bleated", "fox": "yelped", "rabbit": "hopped",
}  # fmt: skip
# After the first three "it" is mostly the surface, after the next two mostly the animal.
SITTING = ["sat on", "lay on", "stayed on"]
SLEEPING = ["slept on", "rested on"]
LEAVING = "left"
MARKS = "gate tree fence pond bridge".split()

TOO_LARGE = "big wide long".split()
TOO_SMALL = "small narrow short".split()
GIVERS = "kind generous friendly".split()

# Singular, plural and preposition of what a sentence is about, and of the noun that stands before its verb.
HEADS = [
    ("key", "keys", "to"), ("label", "labels", "on"), ("book", "books", "near"), ("flower", "flowers", "by"),
    ("picture", "pictures", "of"), ("cup", "cups", "near"), ("road", "roads", "to"), ("sign", "signs", "on"),
]  # fmt: skip
ATTRACTORS = {
    "box": "boxes", "bag": "bags", "door": "doors", "shop": "shops", "lamp": "lamps", "house": "houses",
    "window": "windows", "table": "tables", "cupboard": "cupboards", "farm": "farms",
}  # fmt: skip
LOOKS = "new lost broken shiny".split()
COLOURS = "red blue green white".split()

COUNTED = {"egg": "eggs", "coin": "coins", "card": "cards", "nut": "nuts", "shell": "shells", "stamp": "stamps"}
NUMBERS = "zero one two three four five six seven eight".split()

MORE = {"taller": "shorter", "older": "younger", "faster": "slower", "stronger": "weaker"}
OPPOSITE = {**MORE, **{less: more for more, less in MORE.items()}}

LISTED = OBJECTS + CONTAINERS + PLACES + SURFACES + ANIMALS + NAMES

# Words of the sentences themselves.
OPENINGS = ["one morning ,", "one evening ,", "one day ,"]
REST = """
    . , ? the a and to in at so than too not now who what where did fit because had gave moved put took opened
    saw near was were it they he she him her whispered repeated clean wet dirty hurt lazy
""".split()

PAD, BEGIN, END, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"


def vocabulary():
    """All tokens in the order of their ids: the special ones, then the words by alphabet."""
    phrases = [*OPENINGS, *WAYS, *SITTING, *SLEEPING, *SURFACE_VERB.values(), *ANIMAL_VERB.values(), LEAVING]
    words = {word for phrase in phrases for word in phrase.split()}
    for nouns in (THINGS, SURFACES_BY_QUALITY, ANIMALS_BY_STATE, SOUND_OF, ATTRACTORS, COUNTED, OPPOSITE):
        words.update(nouns)
    for forms in (SOUND_OF, ATTRACTORS, COUNTED):
        words.update(forms.values())
    words.update(word for head in HEADS for word in head)
    words.update(LISTED, LOSSES, MARKS, TOO_LARGE, TOO_SMALL, GIVERS, LOOKS, COLOURS, NUMBERS[1:], REST)
    return [PAD, BEGIN, END, UNKNOWN, *sorted(words)]
