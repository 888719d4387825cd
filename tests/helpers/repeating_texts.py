"""Texts that repeat themselves: without end, as small models do, and for a reason."""

import json

#: Loops that small models wrote: the text before, and what comes again and again.
LOOPS = [
    ("The Colosseum is the largest amphitheatre. ", "It was built to hold 500 spectators. "),
    ("", "terrestrial planet that is a "),
    ("Autumn\n\n", "A harvest moon's light,\n"),
    ("Some synonyms are:\n", "* Pleasureful\n"),
    ("", "ha "),
    ("In other languages: ", '"Good Morning" in Hebrew, '),
]

GIFTS = ["partridge in a pear tree", "two turtle doves", "three French hens", "four calling birds", "five gold rings"]
GIFTS += ["six geese a-laying", "seven swans a-swimming", "eight maids a-milking", "nine ladies dancing"]
JACK = ["the house that Jack built", "the malt that lay in", "the rat that ate", "the cat that killed"]
JACK += ["the dog that worried", "the cow with the crumpled horn that tossed", "the maiden all forlorn that milked"]

LEGITIMATE = {
    "cumulative song": "".join(f"On day {n}:\n" + ",\n".join(GIFTS[n::-1]) + ".\n\n" for n in range(len(GIFTS))),
    "nursery rhyme": "".join("This is " + "\n".join(JACK[n::-1]) + ".\n\n" for n in range(len(JACK))),
    "counting song": "".join(
        f"{n} bottles of beer on the wall, {n} bottles of beer.\nTake one down, {n - 1} bottles on the wall.\n\n"
        for n in range(99, 1, -1)
    ),
    "chorus": "".join(
        f"Verse {n} is about {about}, in words of its own.\n\nAnd it's no, nay, never,\nNo, nay, never, no more,\n"
        "Will I play the wild rover,\nNo, never, no more.\n\n"
        for n, about in enumerate(("sea", "land", "wine", "gold", "home", "roads"))
    ),
    "round": "Row, row, row your boat\nGently down the stream.\nMerrily, merrily, merrily,\nLife is but a dream.\n" * 3,
    "litany": "".join(f"Saint {name}, pray for us.\n" for name in (*JACK, *GIFTS, *JACK, *GIFTS)),
    "integers": ", ".join(map(str, range(800))),
    "zeros": ("0, " * 28 + "\n") * 28,
    "table": "| n | square |\n| --- | --- |\n" + "".join(f"| {n} | {n * n} |\n" for n in range(200)),
    "equal rows": "| day | weather | sold |\n| --- | --- | --- |\n" + "| Monday | sunny | 0 |\n" * 18,
    "log": "".join(f"2024-05-01 10:{m:02}:00 INFO request served in {m * 7 % 50} ms\n" for m in range(60)),
    "JSON": json.dumps([{"name": "sensor", "unit": "kelvin", "value": 0}] * 30),
    "code": "```python\n" + "".join(f"def test_{n}():\n    assert f({n}) == 0\n\n" for n in range(60)) + "```",
    "equal lines of code": "```\n" + "    x = block(x)\n" * 15 + "```",
    "form": "Name: ______________________________\nStreet: ____________________________\n" * 6,
    "lines": "Contents " + "." * 300 + " 5\n" + "-" * 300 + "\n",
}
