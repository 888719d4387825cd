"""Bodies of requests that are changed at random."""

import copy

#: What takes the place of a value.
VALUES = [
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    1 << 31,
    -(1 << 63),
    1 << 80,
    0.5,
    1e308,
    -1e308,
    "",
    "a",
    "\u0000",
    "\ud83d",
    "\U0001f600" * 50,
    "<|im_end|>",
    " " * 2000,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": ""},
    {"type": "text"},
    {"type": "function"},
    {"$ref": "#"},
    [1 << 40],
    ["a", 1],
    "9" * 5000,
]


def nodes(value, path=()):
    """The places of all values within a JSON value."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from nodes(value[key], (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from nodes(each, (*path, number))


def changed(rng, body):
    """A body with a few changes."""
    body = copy.deepcopy(body)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = [path for path in nodes(body) if path]
        if not places:
            return body
        *way, last = rng.choice(places)
        around = body
        for key in way:
            around = around[key]
        change = rng.randrange(6)
        if change == 0:
            del around[last]
        elif change == 1 and isinstance(around, dict):
            name = rng.choice(["x", "type", "$ref", "content", "role", "enum", "items", "pattern"])
            around[name] = copy.deepcopy(rng.choice(VALUES))
        elif change == 2 and isinstance(around, list):
            around += [copy.deepcopy(rng.choice(around or [None])) for _ in range(rng.choice((1, 40)))]
        elif change == 3:
            for _ in range(rng.choice((1, 30, 200))):
                around[last] = rng.choice(([around[last]], {"a": around[last]}))
        else:
            around[last] = copy.deepcopy(rng.choice(VALUES))
    return body
