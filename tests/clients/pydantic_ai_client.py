# /// script
# dependencies = ["pydantic-ai-slim[openai,anthropic]>=1"]
# ///
"""Pydantic AI, by OpenAI's APIs and by Anthropic's."""

import asyncio
import sys
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

URL, ANSWER = sys.argv[1:]
openai = OpenAIProvider(base_url=f"{URL}/v1", api_key="none")
anthropic = AnthropicProvider(base_url=URL, api_key="none")
models = [
    OpenAIChatModel("any", provider=openai),
    OpenAIResponsesModel("any", provider=openai),
    AnthropicModel("claude-any", provider=anthropic),
]


class Letter(BaseModel):
    """A letter."""

    letter: Literal["W"]


async def streamed(agent):
    async with agent.run_stream("Hello.") as answer:
        return [piece async for piece in answer.stream_text(delta=True)]


for model in models:
    assert Agent(model).run_sync("Hello.").output == ANSWER
    assert "".join(asyncio.run(streamed(Agent(model)))) == ANSWER
    assert Agent(model, output_type=ToolOutput(Letter)).run_sync("Hello.").output.letter == "W"
for model in models[:2]:
    assert Agent(model, output_type=NativeOutput(Letter)).run_sync("Hello.").output.letter == "W"
