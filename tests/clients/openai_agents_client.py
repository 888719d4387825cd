# /// script
# dependencies = ["openai-agents>=0.6"]
# ///
"""The SDK of OpenAI Agents, by both of OpenAI's APIs."""

import asyncio
import sys
from typing import Literal

from agents import Agent, ModelSettings, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from pydantic import BaseModel

URL, ANSWER = sys.argv[1:]
set_tracing_disabled(True)


class Letter(BaseModel):
    """A letter."""

    letter: Literal["W"]


@function_tool
def get_weather(city: str) -> str:
    """Tell the weather."""
    assert city == "W", city
    seen.append(city)
    return "Fog."


async def run():
    client = AsyncOpenAI(base_url=f"{URL}/v1", api_key="none")
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        model = kind(model="any", openai_client=client)
        session = SQLiteSession("one")
        for _ in range(2):
            answer = await Runner.run(Agent(name="Octavo", model=model), "Hello.", session=session)
            assert answer.final_output == ANSWER, answer
        result = Runner.run_streamed(Agent(name="Octavo", model=model), "Hello.")
        async for _ in result.stream_events():
            pass
        assert result.final_output == ANSWER, result
        must = Agent(
            name="Tool", model=model, tools=[get_weather], model_settings=ModelSettings(tool_choice="required")
        )
        seen.clear()
        answer = await Runner.run(must, "Hello.")
        assert (answer.final_output, seen) == (ANSWER, ["W"]), (answer, seen)
        typed = await Runner.run(Agent(name="Typed", model=model, output_type=Letter), "Hello.")
        assert typed.final_output.letter == "W", typed


seen = []
asyncio.run(run())
