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

// Further turns: OpenAI's provider refers to the items of earlier answers, or names a conversation.
const user = (content) => ({ role: "user", content });
for (const model of models) {
  const first = await generateText({ model, prompt: "Hello.", maxOutputTokens: 60 });
  const messages = [user("Hello."), ...first.response.messages, user("And now?")];
  assert.equal((await generateText({ model, messages, maxOutputTokens: 60 })).text, answer);
}
const post = async (path, body) => (await fetch(`${url}${path}`, { method: "POST", body })).json();
const conversation = (await post("/v1/conversations", "{}")).id;
for (const prompt of ["Hello.", "And now?"]) {
  const providerOptions = { openai: { conversation } };
  assert.equal((await generateText({ model: openai("any"), prompt, providerOptions, maxOutputTokens: 60 })).text, answer);
}

// An answer from a vector store, and a turn after it.
const form = new FormData();
form.append("purpose", "assistants");
form.append("file", new Blob(["The keeper saw 90 ships in May. ".repeat(40)]), "log.txt");
const file = await post("/v1/files", form);
const store = await post("/v1/vector_stores", JSON.stringify({ file_ids: [file.id] }));
const found = await generateText({
  model: openai("any"),
  prompt: "How many ships did the keeper see?",
  tools: { file_search: openai.tools.fileSearch({ vectorStoreIds: [store.id] }) },
  providerOptions: { openai: { include: ["file_search_call.results"] } },
  maxOutputTokens: 60,
});
assert.equal(found.text, answer);
assert.equal(found.toolResults[0].output.results[0].filename, "log.txt");
const messages = [user("How many?"), ...found.response.messages, user("And now?")];
assert.equal((await generateText({ model: openai("any"), messages, maxOutputTokens: 60 })).text, answer);
