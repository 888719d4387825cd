// npm: ollama@^0.6
// Ollama's own package for JavaScript.
import assert from "node:assert";
import { Ollama } from "ollama";

const [url, answer] = process.argv.slice(2);
const ollama = new Ollama({ host: url });
const messages = [{ role: "user", content: "Hello." }];
const [{ model }] = (await ollama.list()).models;
assert.equal((await ollama.show({ model })).details.format, "gguf");
assert.equal((await ollama.ps()).models.length, 1);
assert.equal((await ollama.chat({ model, messages })).message.content, answer);
let text = "";
for await (const part of await ollama.chat({ model, messages, stream: true })) text += part.message.content;
assert.equal(text, answer);
assert.equal((await ollama.generate({ model, prompt: "Hello." })).response, answer);
const format = { type: "object", properties: { letter: { const: "W" } }, required: ["letter"] };
assert.deepEqual(JSON.parse((await ollama.chat({ model, messages, format })).message.content), { letter: "W" });
