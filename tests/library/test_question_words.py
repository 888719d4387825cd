"""Which words of a question say something about its subject, and questions about a whole text."""

import pytest

from octavo.library.question_words import needs_whole, says_something, subject_words, with_subject


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("What does a blinking orange lamp mean?", "blinking orange lamp mean"),
        ("Wie hoch ist die Miete?", "hoch Miete"),
        ("Où est le phare de Skerry ?", "phare Skerry"),
        ("¿Quién pintó el faro?", "pintó faro"),
        ("Who is it?", "Who is it"),  # all, where nothing else is left
        ("2024?", "2024"),
        ("灯台は誰が塗りましたか", "灯台は誰が塗りましたか"),
        ("", ""),
    ],
)
def test_words_of_the_subject_are_kept(question, subject):
    assert subject_words(question) == subject


@pytest.mark.parametrize("piece", ["?", " ", "", " What", "the", " ,", "!?"])
def test_punctuation_and_words_of_grammar_say_nothing(piece):
    assert not says_something(piece)


@pytest.mark.parametrize("piece", [" lamp", "17", "Überblick", "灯"])
def test_other_words_say_something(piece):
    assert says_something(piece)


def test_a_question_without_a_subject_has_that_of_the_one_before():
    assert with_subject("Why?", "Who sank the Petrel?") == ("Who sank the Petrel?\nWhy?", "")
    assert with_subject("Why at night?", "Who sank the Petrel?") == ("Why at night?", "Who sank the Petrel?")
    assert with_subject("Why?", "") == ("Why?", "")


#: Sixty questions about a whole, and sixty about a place in it, in six languages; of these, the last are taken for the
#: other kind, as no word tells.
OF_WHOLES = """
Summarise the report.
Can you give me a short summary of this?
What is this book about?
What are the main points?
What does the document say overall?
What is the text about?
List all the people who are mentioned.
Name every ship in the story.
What are the key findings?
Give an overview of the contract.
How many times is Mr Knightley mentioned?
How often does the word sea occur?
Which characters appear in the novel?
What is the moral of the story?
What topics are covered?
tl;dr
Explain the document in simple words.
What themes run through the book?
Make an outline of chapters.
What happens in the book?
Fasse den Text zusammen.
Worum geht es in dem Buch?
Was sind die wichtigsten Punkte?
Nenne alle Personen.
Résume ce document.
De quoi parle ce livre ?
¿De qué trata el texto?
Riassumi il documento.
Quais são os pontos principais?
Write a summary in three sentences
Sum up the paper
What's it about?
What are these documents about?
Please summarize chapter by chapter
Give me the gist
What are the most important points of the contract?
Can you list all dates?
Find all names in the letter
Tell me about this document
Describe this letter in one sentence
Who are the main characters?
What is the main message?
How many people are mentioned?
What does this paper argue?
Which countries are mentioned in the report?
Shorten this text
Was steht in dem Dokument?
Gib mir einen Überblick
Wovon handelt die Geschichte?
Quels sont les points principaux ?
Fais un résumé
¿Cuáles son las ideas principales?
Haz un resumen del libro
Di cosa parla il libro?
Quali sono i punti principali?
Do que fala o texto?
Faça um resumo
"""
OF_PLACES = """
How many euros does the choir have?
How often does the lamp flash?
How many sacks did he have?
Who painted the lighthouse?
What is the number of the flat?
How many members were present in total?
When does the meeting begin?
How much did the lamp cost?
What does the tenant pay for repairs?
Who wrote the summary of the meeting?
What is the main entrance made of?
Where is the story of the fox told?
Who lives at Donwell Abbey?
Which document must be signed first?
Why did all ships leave?
What happened to the whole crew on Monday?
How many arches does the viaduct have?
Did every member agree?
What is the key of the cellar kept in?
When was the book printed?
Who is named as the owner in the contract?
How many kilometres is the line long?
In which chapter does Emma go to Box Hill?
What is the notice period about moving out?
Wie viele Mitglieder waren da?
Wie hoch ist die Miete?
Combien coûte la lampe ?
¿Cuántos puentes hay?
Quanto costa il biglietto?
Quem pintou o farol?
What is the main street called?
How many pages does the contract have?
Who summarised the results at the meeting?
When was the report published?
How much is the rent?
What is the book on the table about whales called?
Where does the story take place?
What did Anna find in the box?
Which file format does the camera write?
What is the moral duty of a keeper?
Who owns the plot beside the church?
How often may the tenant have guests?
What is the deposit?
How many people died in the fire?
Did the letter arrive in time?
Who sent the letter?
What is described as a green box?
How many ships left the harbour on Monday?
What happens if the tenant does not pay?
How long does the warranty last?
What is the key to the gate made of?
What was the topic of the talk on Friday?
Which paper was the map printed on?
Wann ist die Versammlung?
Wie oft blinkt die Lampe?
Quel est le prix du billet ?
Où habite le gardien ?
¿Cuándo empieza el concierto?
Chi ha costruito il faro?
"""
NOT_RECOGNISED, TAKEN_FOR_WHOLES = (
    """
How does the story end?
What conclusions does the report draw?
In a nutshell, what does the author say?
""",
    """
What are all the doors painted with?
""",
)


@pytest.mark.parametrize(
    ("questions", "expected"),
    [(OF_WHOLES, True), (NOT_RECOGNISED, False), (OF_PLACES, False), (TAKEN_FOR_WHOLES, True)],
)
def test_questions_about_a_whole_are_told_from_those_about_a_place(questions, expected):
    assert [each for each in questions.strip().split("\n") if needs_whole(each) != expected] == []


def test_long_questions_are_looked_through_once():
    """Each word of the first kind would be followed to the end of the line: a minute and more."""
    assert not needs_whole("how many " * 100_000)
    assert not needs_whole("fasse " * 100_000)
    assert needs_whole("how many " * 100_000 + "does it mention?")
    assert not needs_whole("How many?\nIs it mentioned?")
