"""Test what cells show by their formats."""

from datetime import date, datetime, time, timedelta

import pytest

from octavo.documents.office.number_formats import shown_value

ACCOUNTS = '_-* #,##0.00 "kr"_-;-* #,##0.00 "kr"_-;_-* "-"??_-;_-@_-'


@pytest.mark.parametrize(
    ("value", "number_format", "text"),
    [
        (1234.5, '#,##0.00 "kr"', "1,234.50 kr"),
        (40, "[$€-407] #,##0.00", "€ 40.00"),
        (4890, "00000", "04890"),
        (42, '"KX-"0000', "KX-0042"),
        (5, ";;;", ""),
        ("x", ";;;", ""),
        ("x", "0;0;0;@", "x"),
        ("Lund", '"Ms "@', "Ms Lund"),
        ("x", '0;0;0;@" (late)"', "x (late)"),
        (0.125, "0.0%", "12.5%"),
        (1, "0%", "100%"),
        (-5, "#,##0;(#,##0)", "(5)"),
        (-5, "0.00", "-5.00"),
        (1234567, '#,##0.0,,"M"', "1.2M"),
        (123456789, "000-00-0000", "123-45-6789"),
        (-12.5, ACCOUNTS, "- 12.50 kr"),
        (0, ACCOUNTS, "-"),
        (5, "0.##", "5"),
        (3, '0 "items"', "3 items"),
        (7, "[Red]0", "7"),
        (0.1 + 0.2, "General", "0.3"),
        (12345.678, "0.00E+00", "12345.678"),
        (True, "General", "TRUE"),
        (None, "0", ""),
        (timedelta(days=1.5), "[h]:mm", "36:00"),
        (-timedelta(hours=1.5), "[h]:mm", "-1:30"),
        (time(9, 30), "h:mm", "09:30"),
        (time(9, 29, 59, 999_999), "h:mm", "09:30"),
        (time(9, 30), "h:mm:ss", "09:30:00"),
        (datetime(2026, 6, 9), "d/m/yy", "2026-06-09"),
        (datetime(2026, 6, 9, 9, 30), "d/m/yy h:mm", "2026-06-09 09:30"),
        (date(2026, 6, 9), "General", "2026-06-09"),
        ("Quay 4_x000D_\nOslo_x005F_N", "General", "Quay 4\r\nOslo_N"),
    ],
)
def test_a_cell_shows_its_value_as_its_format_says(value, number_format, text):
    assert shown_value(value, number_format) == text


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (1234.5, "#,##0", "1,235"),
        (2.675, "0.00", "2.68"),
        (0.285, "0%", "29%"),
        (-0.5, "0", "-1"),
        (1e22, "0", "1" + "0" * 22),
    ],
)
def test_halves_are_rounded_up(value, code, shown):
    assert shown_value(value, code) == shown


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (-1234.1, "#,##0.00;[Red]#,##0.00", "-1,234.10"),
        (-1234.1, "$#,##0.00;[Red]$#,##0.00", "-$1,234.10"),
        (-0.05, "0.0%;[Color10]0.0%", "-5.0%"),
        (-7, '#,##0_);[Blue]#,##0_);"none"', "-7"),
        (-7, '0 "kr";[RED]0.0 "kr"', "-7.0 kr"),
        (-7, "[Black]0;[Red]-0", "-7"),
        (-7, "0_);[Red](0)", "(7)"),
        (-7, '0" Cr";[Red]0" Dr"', "7 Dr"),
        (-7, "[Green]▲0;[Red]▼0", "▼7"),
        (-7, "[Blue]+0;0", "-7"),
        (-7, "0;[Red]\u20130", "\u20137"),
        (-7, "0;0", "7"),  # its author wants none
        (7, "0;[Red]0", "7"),
        (0, "0;[Red]0;[Red]0", "0"),
    ],
)
def test_a_negative_number_that_only_a_colour_marks_has_a_sign(value, code, shown):
    assert shown_value(value, code) == shown


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (12.5, ".00", "12.50"),
        (0.125, ".0%", "12.5%"),
        (0.5, ".00", ".50"),
        (-12.5, ".00", "-12.50"),
        (1234.5, '"$".00', "$1234.50"),
        (-1234.5, ".0;[Red].0", "-1234.5"),
        (3, ".##", "3"),
        (12345, "#,##0,.0", "12.3"),
    ],
)
def test_digits_before_the_point_need_no_place(value, code, shown):
    assert shown_value(value, code) == shown


@pytest.mark.parametrize("value", [1e400, -1e400, float("nan"), 10**400])
@pytest.mark.parametrize("code", ["General", "0.00", "#,##0;[Red]#,##0"])
def test_a_number_that_no_cell_can_hold_ends_no_file(value, code):
    assert shown_value(value, code) == "#NUM!"


def test_the_last_moment_of_the_calendar_is_shown():
    assert shown_value(datetime(9999, 12, 31, 23, 59, 59, 999_000), "d/m/yy h:mm") == "9999-12-31 23:59:59"
