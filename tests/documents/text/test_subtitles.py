"""Test that each line of subtitles is read once, with its time."""

import pytest

from octavo.documents.extract import extract_document
from octavo.documents.text.subtitles import extract_subtitles


def srt(*cues):
    times = [f"00:00:{number:02},000 --> 00:00:{number:02},900" for number in range(1, len(cues) + 1)]
    return "".join(
        f"{number}\n{time}\n{cue}\n\n" for number, (time, cue) in enumerate(zip(times, cues, strict=True), 1)
    )


def vtt(*cues):
    """Captions without a gap between them."""
    times = [f"00:{number:02}.000 --> 00:{number + 1:02}.000 align:start" for number in range(len(cues))]
    return "WEBVTT\n\n" + "".join(f"{time}\n{cue}\n\n" for time, cue in zip(times, cues, strict=True))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (srt("The lamp\n\nburns.", "Two."), "[00:00:01] The lamp burns.\n[00:00:02] Two.\n"),
        (srt("\nOne.\n \nTwo.\n\n", "\n\n", "40"), "[00:00:01] One. Two.\n[00:00:03] 40\n"),
        (srt("One.", "", "3 boats.\n\n4 more."), "[00:00:01] One.\n[00:00:03] 3 boats. 4 more.\n"),
        (srt("One.", "Two.").replace("\n\n", "\n"), "[00:00:01] One.\n[00:00:02] Two.\n"),
        (vtt("a\n\nNOTE no\nno", "b\n\nSTYLE\nno\n\nlast"), "[00:00] a\n[00:01] b last\n"),
        (vtt("a\n\nid of b", "b\nNOTE seen", "c"), "[00:00] a id of b\n[00:01] b NOTE seen\n[00:02] c\n"),
        ("WEBVTT\n\none\n00:01.0 --> 00:02.0\na\n\ntwo\n00:03.0 --> 00:04.0\nb", "[00:01] a\n[00:03] b\n"),
    ],
)
def test_a_blank_line_ends_no_subtitle(content, text):
    assert extract_subtitles(content.encode(), "a.srt").text == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (srt("- Where is it?\n- At the quay."), "[00:00:01] - Where is it?\n[00:00:01] - At the quay.\n"),
        (srt("– Where is\nthe boat?\n– Here."), "[00:00:01] – Where is the boat?\n[00:00:01] – Here.\n"),  # noqa: RUF001
        (srt("ANE: Where?\nPER MOE: Here."), "[00:00:01] ANE: Where?\n[00:00:01] PER MOE: Here.\n"),
        (srt(">> Where?\n>> Here."), "[00:00:01] >> Where?\n[00:00:01] >> Here.\n"),
        (vtt("<v Ane>Where?\n<v.loud Per Moe>Here.</v>"), "[00:00] Ane: Where?\n[00:00] Per Moe: Here.\n"),
        (vtt("<v Ane>Where?</v> <v Per>Here.</v>"), "[00:00] Ane: Where?\n[00:00] Per: Here.\n"),
        (srt("- One of\nthe boats."), "[00:00:01] - One of the boats.\n"),
        (srt("The 3 boats -\nall of them."), "[00:00:01] The 3 boats - all of them.\n"),
    ],
)
def test_speakers_stay_apart(content, text):
    document = extract_subtitles(content.encode(), "a.srt")
    assert document.text == text
    assert len(document.places) == 1


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            vtt(" \na<00:00.4><c> b</c>", "a b\n ", "a b\nc<00:02.4><c> d</c>", "c d\n ", "c d\ne"),
            "[00:00] a b\n[00:02] c d\n[00:04] e\n",
        ),
        (vtt("a", "a\nb", "b\nc", "c\nd"), "[00:00] a\n[00:01] b\n[00:02] c\n[00:03] d\n"),
        (vtt("a\nb", "a\nb\nc", "b\nc\nd"), "[00:00] a b\n[00:01] c\n[00:02] d\n"),
        (vtt("the", "the keeper", "the keeper saw", "ships"), "[00:00] the keeper saw\n[00:03] ships\n"),
        (srt("No.", "No.", "He said:", "Yes.", "Of course."), "No. No. He said: Yes. Of course."),
        (
            vtt("La la.", "La la.", "One.", "Two.", "Three.", "Four.", "Five."),
            "La la. La la. One. Two. Three. Four. Five.",
        ),
    ],
)
def test_lines_of_captions_that_roll_are_read_once(content, text):
    document = extract_subtitles(content.encode(), "a.vtt")
    if text.startswith("["):
        assert document.text == text
    else:
        assert " ".join(line.partition("] ")[2] for line in document.text.splitlines()) == text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_subtitles_in_any_unicode(tmp_path, encoding, ending):
    path = tmp_path / "a.srt"
    path.write_bytes(srt("The keeper saw ships.", "Ninety.").replace("\n", ending).encode(encoding))
    document = extract_document(path)
    assert document.text == "[00:00:01] The keeper saw ships.\n[00:00:02] Ninety.\n"
    assert [place.heading for place in document.places] == ["00:00:01", "00:00:02"]


@pytest.mark.parametrize(
    ("name", "written", "text"),
    [
        ("a.ics", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Fog\nEND:VEVENT\nEND:VCALENDAR\n", "# Fog\n"),
        ("a.eml", "From: Ane\nMIME-Version: 1.0\n\nFog.\n", "From: Ane\n\nFog.\n"),
        ("a.html", "<!doctype html><meta charset=utf-16><p>Fog", "Fog\n"),
        ("a.ipynb", '{"nbformat": 4, "cells": [{"cell_type": "markdown", "source": "Fog"}]}', "Fog\n"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_other_texts_in_any_unicode(tmp_path, name, written, text, encoding):
    (tmp_path / name).write_bytes(written.encode(encoding))
    assert extract_document(tmp_path / name).text == text
