// Settings of the answers, kept in the browser, and the models that the server has.

import { announce, byId, count, emit, make, opened, plural, showProblem, write } from "./elements.js";
import { fetched } from "./server.js";

const KEY = "octavo.settings";
/** The fields of the dialog. What is empty is left to the server. */
const FIELDS = ["model", "reads", "whole", "thinking", "temperature", "limit", "compare", "system"];

let models = [];
let settings = {};
try {
  settings = JSON.parse(localStorage.getItem(KEY)) ?? {};
} catch {
  // Another page wrote it, or the browser keeps nothing: the server's own settings hold.
}

/** Return the model that is asked: the one that was chosen, if the server still has it, or else its first. */
const model = () => models.find(({ id }) => id === settings.model) ?? models[0];
export const modelId = () => model()?.id;
/** Return the end of a path that names the model, which decides on the library; "" where there is only one. */
export const modelQuery = () => (models.length > 1 ? `?model=${encodeURIComponent(modelId())}` : "");

/** Return the fields of a request that the settings set. */
export function requestFields() {
  const { reads, whole, thinking, temperature, limit } = settings;
  return {
    ...(reads ? { reads } : {}),
    ...(whole ? { whole } : {}),
    ...(thinking && thinks() ? { reasoning_effort: thinking } : {}),
    ...(temperature != null ? { temperature } : {}),
    ...(limit != null ? { max_tokens: limit } : {}),
  };
}

export const systemPrompt = () => settings.system ?? "";
export const compares = () => settings.compare ?? false;

const thinks = () => model()?.capabilities?.includes("thinking") ?? false;

/** Ask for the models, and show the one that answers. */
export async function showModel() {
  const element = byId("model");
  try {
    models = (await fetched("v1/models")).data;
    const { id, meta } = model();
    const context = meta?.n_ctx ? `Reads up to ${plural(meta.n_ctx, "token")} at once` : "";
    const lines = [purposeOf(meta?.n_params), context].filter(Boolean);
    element.replaceChildren(make("p", { class: "name" }, id), ...lines.map((line) => make("p", {}, line)));
  } catch (error) {
    const problem = make("p", { class: "problem" });
    showProblem(problem, error.message, showModel);
    element.replaceChildren(problem);
  }
  showChanged();
}

/** What models of up to so many parameters are for. */
const PURPOSES = [
  [5e8, "To try octavo with. A better one: octavo serve -hf bartowski/Llama-3.2-1B-Instruct-GGUF (0.8 GB)"],
  [2e9, "For questions that a passage answers."],
  [5e9, "For questions about a document."],
  [Infinity, "For hard questions; slow on a laptop."],
];
const purposeOf = (n) => (n ? PURPOSES.find(([most]) => n <= most)[1] : "");

/** Show how many settings are not the server's own. */
function showChanged() {
  const changed = FIELDS.filter((name) => name !== "model" && settings[name] != null).length;
  write(byId("settings-label"), changed ? `Settings (${changed} changed)` : "Settings");
}

/** Let the user change the settings. */
export async function changeSettings() {
  const dialog = byId("settings");
  const field = (name) => dialog.querySelector(`[name=${name}]`);
  field("model").replaceChildren(...models.map(({ id }) => make("option", { value: id }, id)));
  byId("model-field").hidden = models.length < 2;
  for (const name of FIELDS) field(name).value = settings[name] ?? (name === "model" ? (modelId() ?? "") : "");
  field("compare").checked = compares();
  byId("thinking-field").hidden = !thinks();
  fetched(`props${modelQuery()}`).then(showDefaults, () => {}); // the fields can be filled without
  const how = await opened(dialog);
  if (how !== "save" && how !== "reset") return;
  const before = modelId();
  const given = (name) => {
    if (name === "compare") return field(name).checked || "";
    return name === "temperature" || name === "limit" ? field(name).valueAsNumber : field(name).value;
  };
  const values = FIELDS.map((name) => [name, given(name)]).filter(([, value]) => value !== "" && !Number.isNaN(value));
  settings = how === "reset" ? {} : Object.fromEntries(values);
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    announce("This browser keeps no settings: they hold until the page is closed.");
  }
  showChanged();
  emit("settings");
  await showModel();
  if (modelId() !== before) emit("model");
}

/** Show what the server does where a field is empty. */
function showDefaults({ default_generation_settings: { params }, chat_template: template }) {
  const { temperature, temperature_over_documents: overDocuments } = params;
  byId("temperature").placeholder =
    temperature === overDocuments ? String(temperature) : `${overDocuments} over documents, else ${temperature}`;
  byId("limit").placeholder = params.n_predict < 0 ? "No limit" : count(params.n_predict);
  // Models with several efforts name them in their template; others think, or do not.
  const grades = /reasoning_effort/.test(template ?? "");
  for (const option of byId("thinking").options) {
    option.hidden = option.disabled = !grades && ["low", "high"].includes(option.value);
    if (option.value === "medium") write(option, grades ? "Medium" : "On");
  }
}
