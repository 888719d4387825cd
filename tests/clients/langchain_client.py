# /// script
# dependencies = ["langchain-openai>=1", "langchain-anthropic>=1"]
# ///
"""LangChain, by OpenAI's APIs and by Anthropic's."""

import base64
import sys
from typing import Literal

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

URL, ANSWER = sys.argv[1:]


@tool
def get_weather(city: str) -> str:
    """Tell the weather."""
    return "Fog."


class Letter(BaseModel):
    """A letter."""

    letter: Literal["W"]


FILE = {
    "type": "file",
    "base64": base64.b64encode(b"A ship lay in the harbour for a year, and nobody knew why. " * 20).decode(),
    "mime_type": "text/plain",
    "filename": "ship.txt",
}
how = {"base_url": f"{URL}/v1", "api_key": "none", "model": "any"}
anthropic = ChatAnthropic(base_url=URL, api_key="none", model="claude-any", max_tokens=200)
for model in (ChatOpenAI(**how), ChatOpenAI(**how, use_responses_api=True), anthropic):
    assert model.invoke("Hello.").text == ANSWER
    assert "".join(chunk.text for chunk in model.stream("Hello.")) == ANSWER
    called = model.bind_tools([get_weather], tool_choice="any").invoke("Hello.")
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "W"}), call
    after = model.bind_tools([get_weather]).invoke([HumanMessage("Hello."), called, get_weather.invoke(call)])
    assert after.text == ANSWER
    assert model.with_structured_output(Letter).invoke("Hello.").letter == "W"
assert ChatOpenAI(**how).invoke([HumanMessage([FILE, {"type": "text", "text": "What is it?"}])]).text
