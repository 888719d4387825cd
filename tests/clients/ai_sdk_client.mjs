// npm: ai@^6 @ai-sdk/openai-compatible@^2 @ai-sdk/openai@^3 @ai-sdk/anthropic@^3 zod@^4
// The AI SDK, by OpenAI's APIs and by Anthropic's.
import assert from "node:assert";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, Output, streamText, tool } from "ai";
import { z } from "zod";

const [url, answer] = process.argv.slice(2);
const compatible = createOpenAICompatible({ name: "octavo", baseURL: `${url}/v1`, supportsStructuredOutputs: true });
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" });
const models = [compatible("any"), openai("any"), openai.chat("any"), anthropic("claude-any")];
for (const model of models) {
  const prompt = "Hello.";
  assert.equal((await generateText({ model, prompt, maxOutputTokens: 60 })).text, answer);
  let text = "";
  for await (const piece of streamText({ model, prompt, maxOutputTokens: 60 }).textStream) text += piece;
  assert.equal(text, answer);
  const tools = { weather: tool({ inputSchema: z.object({ city: z.string() }), execute: async () => "Fog." }) };
  const called = await generateText({ model, prompt, tools, toolChoice: "required", maxOutputTokens: 60 });
  assert.deepEqual(called.toolCalls.map((call) => call.input), [{ city: "W" }]);
}
for (const model of models.slice(0, 3)) {
  const output = Output.object({ schema: z.object({ letter: z.literal("W") }) });
  assert.equal((await generateText({ model, prompt: "Hello.", output })).output.letter, "W");
}
