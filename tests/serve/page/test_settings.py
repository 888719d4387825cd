"""Settings of answers on the page, and models."""

from __future__ import annotations

import pytest
from helpers.page_server import REPORT


def change(window, how="save", **values):
    window.click("#open-settings")
    for name, value in values.items():
        field = window.find(f"#settings [name={name}]")
        if field.tag_name == "select":
            field.find_element("css selector", f"option[value='{value}']").click()
        else:
            field.clear()
            field.send_keys(value)
    window.click("#settings [value=save]" if how == "save" else f"#settings [data-close={how}]")


def test_settings_are_sent_and_kept(window, server, report):
    change(window, temperature="0.2", limit="64", reads="excerpts", system="Answer in one word.")
    assert window.text("#settings-label") == "Settings (4 changed)"
    for fresh in (False, True):
        window.ask("What happened?")
        asked = server.chats[-1]
        assert (asked["temperature"], asked["max_tokens"], asked["reads"]) == (0.2, 64, "excerpts")
        assert asked["messages"][0] == {"role": "system", "content": "Answer in one word."}
        if not fresh:
            window.open(fresh=False)
            assert window.text("#settings-label") == "Settings (4 changed)"
    change(window, "reset")
    assert window.text("#settings-label") == "Settings"
    window.ask("And now?")
    assert {"temperature", "max_tokens", "reads", "reasoning_effort"}.isdisjoint(server.chats[-1])
    assert server.chats[-1]["messages"][0]["role"] == "user"


def test_the_servers_own_settings_are_shown(window, server, report):
    window.click("#open-settings")
    window.until(lambda: window.find("#temperature").get_attribute("placeholder") == "0.2 over documents, else 0.8")
    assert window.find("#limit").get_attribute("placeholder") == "1,024"
    assert not window.find("#settings").find_element("id", "model-field").is_displayed()
    assert not window.find("#settings").find_element("id", "thinking-field").is_displayed()
    window.click("#settings [value=save]")
    window.ask("What happened?")
    assert "temperature" not in server.chats[0]


@pytest.mark.parametrize(("name", "value"), [("temperature", "-1"), ("temperature", "9"), ("limit", "0")])
def test_what_cannot_be_is_not_taken(window, server, report, name, value):
    change(window, **{name: value})
    assert window.all("dialog[open]")
    assert window.js(f"return document.querySelector('#{name}').validationMessage")
    window.click("#settings [data-close='']")
    window.ask("What happened?")
    assert {"temperature", "max_tokens"}.isdisjoint(server.chats[0])


def test_enter_saves(window, server, report):
    window.click("#open-settings")
    window.find("#temperature").send_keys("0.3\n")
    window.sees("#settings-label", "Settings (1 changed)")
    window.ask("What happened?")
    assert server.chats[0]["temperature"] == 0.3


def test_cancel_changes_no_setting(window, server, report):
    window.click("#open-settings")
    window.find("#temperature").send_keys("1")
    window.press("\ue00c")
    window.until(lambda: not window.all("dialog[open]"))
    assert window.focused()["id"] == "open-settings"
    window.ask("What happened?")
    assert "temperature" not in server.chats[0]


def options(window):
    shown = (
        "return [...document.querySelectorAll('#thinking option')].filter((o) => !o.hidden).map((o) => o.textContent)"
    )
    return window.js(shown)


def test_thinking_is_set_where_the_model_thinks(window, server, report):
    server.models = {"Thinker": ["completion", "thinking"]}
    window.open(fresh=False)
    window.click("#open-settings")
    window.until(lambda: options(window) == ["As the model does", "Off", "On"])
    window.click("#settings [data-close='']")
    change(window, thinking="none")
    window.click("#documents .open")
    window.ask("What happened?")
    assert server.chats[0]["reasoning_effort"] == "none"
    server.template = "{% if reasoning_effort %}"
    window.click("#open-settings")
    window.until(lambda: options(window) == ["As the model does", "Off", "Low", "Medium", "High"])
    window.click("#settings [data-close='']")
    server.models = {"Talker": ["completion"]}
    window.open(fresh=False)
    window.ask("And now?")
    assert "reasoning_effort" not in server.chats[1]


def test_a_model_is_chosen_and_has_its_library(window, server, report):
    server.models = {"Small": ["completion"], "Large": ["completion"]}
    window.open(fresh=False)
    window.sees("#model", "Small")
    window.until(lambda: server.listed_for[-1] == "Small")
    change(window, model="Large")
    window.sees("#model", "Large")
    window.until(lambda: server.listed_for[-1] == "Large")
    window.find("#documents .open")
    window.ask("What happened?")
    assert server.chats[0]["model"] == "Large"
    server.models = {"Small": ["completion"], "Other": ["completion"]}  # the model is gone
    window.open(fresh=False)
    window.sees("#model", "Small")
    window.until(lambda: server.listed_for[-1] == "Small")


def test_settings_of_another_page_are_left_alone(window, server):
    server.store("report.txt", REPORT)
    window.open()
    window.js("localStorage.setItem('octavo.settings', '{')")
    window.open(fresh=False)
    window.ask("What happened?")
    assert window.text(".answer .text") == "The answer."


def test_comparing_sets_the_temperature_itself(window, server, report):
    change(window, temperature="1")
    window.click("#open-settings")
    window.click("#compare")
    window.click("#settings [value=save]")
    assert window.text("#settings-label") == "Settings (2 changed)"
    window.open(fresh=False)
    window.ask("What happened?")
    assert [asked["temperature"] for asked in server.chats] == [0, 0]
