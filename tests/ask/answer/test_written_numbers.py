"""A number of an answer agrees with a text in any form, and another number does not."""

import pytest

from octavo.ask.answer.notices import unfounded
from octavo.ask.answer.written_dates import Date, written_dates
from octavo.ask.answer.written_numbers import plain_number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The debt is 1 234 567 euros.", "It is 1,234,567."),
        ("The debt is 1'234'567 francs.", "It is 1.234.567."),
        ("The debt is 1\u202f234\u202f567,50 €.", "It is 1,234,567.5."),
        ("It has 1\u00a0234 pages.", "It has 1234."),
        ("It costs 10,00,000 rupees.", "It is 1 million."),
        ("Sales were 12,500,000.", "They were 12.5 million."),
        ("Sales were 12,498,332.", "They were 12.5 million."),
        ("Sales were 12,5 Mio. Euro.", "They were 12.5 million."),
        ("Sales in millions | 12.5", "They were 12.5 million."),
        ("Sales were 5 million.", "They were 5,000,000."),
        ("Es kostet 1.5k.", "It is 1,500."),
        ("It costs 50 ct.", "It is 50 cents."),
        ("It weighs 3.250 kg.", "It is 3.25."),
        ("It weighs 3.250 kg.", "It is 3250."),
        ("It weighs 0.050 kg.", "It is 0.05."),
        ("It grew by .5 percent.", "It is 0.5."),
        ("Bake it for 2½ hours.", "It is 2.5."),
        ("Bake it for 2 1/2 hours.", "It is 2.5."),
        ("Es waren zwölf Schafe.", "It is 12."),
        ("It is １２３.", "It is 123."),  # noqa: RUF001
        ("It is ١٢٣.", "It is 123."),
        ("It is 123.", "It is ١٢٣."),
        ("It is 15000.", "It is 1.5万."),
        ("Pages [101,102].", "It is 102."),
        ("In 1985, 100 men came.", "100 in 1985."),
        ("Um 14.05 Uhr.", "At 14:05."),
        ("At 2:05 pm.", "At 14:05."),
        ("At 14:05.", "At 2:05 p.m."),
        ("À 14h05.", "At 14:05."),
        ("At 3 pm.", "At 15:00."),
        ("2024-05-12 14:05:30", "On May 12, 2024, at 14:05."),
        ("2024-05-12T14:05:00", "At 2:05 pm."),
        ("Son 12,5 mil millones.", "It is 12.5 billion."),
        ("On 2024-05-12.", "It is 12.05.2024."),
        ("On 2026-06-09.", "It is on June 9, 2026."),
        ("On May 12, 2024.", "It is 2024-05-12."),
        ("In May 2024.", "It is 2024-05."),
        ("Am 12. Mai 2024.", "It is on May 12, 2024."),
        ("Le 3 août 2023.", "It is on 3 August 2023."),
        ("Am 12.05. ist ein Termin.", "It is on May 12."),
        ("Datum: 12.05.24", "It is on 12 May 2024."),
        ("On 5/12/2024.", "It is 2024-05-12."),
        ("On 5/12/2024.", "It is 2024-12-05."),
        ("2024年5月12日", "It is on May 12, 2024."),
        ("From 12 to 15 May 2024.", "It is from 12 May 2024."),
        ("Report of 2024. The meeting was on 12 May.", "It is 12.05.2024."),
        ("Release 1.2.3 of 3.4.12", "It is 1.2.3, or 3.4.12."),
    ],
)
def test_the_same_number_in_another_form_is_known(text, answer):
    assert unfounded(answer, [text]) == []


@pytest.mark.parametrize(
    ("text", "answer", "found"),
    [
        ("It is 12,500.", "It is 12.5 million.", "12.5 million"),
        ("It is 12 thousand.", "It is 12 million.", "12 million"),
        ("It is 5 million.", "It is 6 million.", "6 million"),
        ("It is 12,500.", "It is 12.5 thousand million.", "12.5 thousand million"),
        ("It is 12,530,000.", "It is 12.51 million.", "12.51 million"),
        ("It is 1.5k.", "It is 15,000.", "15,000"),
        ("It is 1,235.", "It is 1,234.", "1,234"),
        ("It is 1 234 567.", "It is 1,234,568.", "1,234,568"),
        ("It is 1 234 567.", "It is 1 234 568.", "1 234 568"),
        ("It is 1,234,567.", "It is 234.", "234"),
        ("It is 123.", "It is 13.", "13"),
        ("It is １２３.", "It is 124.", "124"),  # noqa: RUF001
        ("It is 3.250.", "It is 3.26.", "3.26"),
        ("It is 0.050.", "It is 0.5.", "0.5"),
        ("It is 2½.", "It is 2.25.", "2.25"),
        ("It is 10².", "It is 102.", "102"),
        ("At 14.05 Uhr.", "At 15:05.", "15:05"),
        ("At 2:05 am.", "At 14:05.", "14:05"),
        ("At 2:05 pm.", "At 2:15 pm.", "2:15"),
        ("On 2024-05-13.", "It is 05.12.2024.", "05.12.2024"),
        ("On 2024-05-12.", "It is 05.12.2024.", "05.12.2024"),
        ("On May 12, 2024.", "It is 2024-05-13.", "2024-05-13"),
        ("On 2024-05-12.", "It is on June 12, 2024.", "June 12, 2024"),
        ("From 2024-05-12 to 2024-06-13.", "It is 13.05.2024.", "13.05.2024"),
        ("On 2024-05-12.", "It is in June.", "June"),
    ],
)
def test_another_number_is_unknown(text, answer, found):
    assert unfounded(answer, [text]) == [found]


@pytest.mark.parametrize(
    ("number", "plain"),
    [("1,234.50", "1234.5"), ("1.234,50", "1234.5"), ("007", "7"), ("0.050", "0.05"), ("1 000", "1000"), ("0", "0")],
)
def test_plain_number(number, plain):
    assert plain_number(number) == plain


def test_dates_are_found_in_order():
    text = "From 31.12.2023 and 1 May to Dec. 24th, 2024; 2024-13-45 is none, and they may go."
    found = [(text[one.start : one.stop], *one.dates) for one in written_dates(text)]
    assert found == [
        ("31.12.2023", Date(2023, 12, 31)),
        ("1 May", Date(0, 5, 1)),
        ("Dec. 24th, 2024", Date(2024, 12, 24)),
    ]
