# /// script
# dependencies = ["llama-index-llms-openai-like>=0.5", "llama-index-core>=0.13"]
# ///
"""LlamaIndex, by OpenAI's chat API."""

import sys
from typing import Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

URL, ANSWER = sys.argv[1:]
llm = OpenAILike(
    model="any", api_base=f"{URL}/v1", api_key="none", is_chat_model=True, is_function_calling_model=True, max_tokens=80
)


class Letter(BaseModel):
    """A letter."""

    letter: Literal["W"]


def get_weather(city: str) -> str:
    """Tell the weather."""
    return "Fog."


assert llm.complete("Hello.").text == ANSWER
assert llm.chat([ChatMessage("Hello.")]).message.content == ANSWER
assert "".join(piece.delta for piece in llm.stream_chat([ChatMessage("Hello.")])) == ANSWER
answer = llm.chat_with_tools([FunctionTool.from_defaults(get_weather)], user_msg="Hello.", tool_required=True)
[call] = llm.get_tool_calls_from_response(answer)
assert call.tool_kwargs == {"city": "W"}, call
assert llm.as_structured_llm(Letter).complete("Hello.").raw.letter == "W"
