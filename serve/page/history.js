// Conversations in the browser's own database: entries of the list, apart from the turns, which may be long.

const [NAME, VERSION] = ["octavo", 1];

let opening = null;

function database() {
  opening ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      request.result.createObjectStore("turns", { keyPath: "id" });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opening;
}

/** Do something with both stores in one transaction. Resolves once it is done, to the request's result. */
async function transact(mode, work) {
  const transaction = (await database()).transaction(["conversations", "turns"], mode);
  return new Promise((resolve, reject) => {
    const request = work(transaction.objectStore("conversations"), transaction.objectStore("turns"));
    transaction.commit(); // the page may go away
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}

/** Return what the list shows of each conversation. */
export const listed = () => transact("readonly", (conversations) => conversations.getAll());

/** Return the turns of a conversation. */
export const turnsOf = async (id) => (await transact("readonly", (_, turns) => turns.get(id)))?.turns ?? [];

/** Keep a conversation: what the list shows of it, and its turns. */
export const keep = (told, turns) =>
  transact("readwrite", (conversations, all) => {
    all.put({ id: told.id, turns });
    return conversations.put(told);
  });

export const erase = (id) =>
  transact("readwrite", (conversations, turns) => {
    turns.delete(id);
    return conversations.delete(id);
  });

/** Pages of this server in other tabs, which receive changes. */
const tabs = new BroadcastChannel("octavo.history");
export const tellTabs = (id) => tabs.postMessage(id);
export const onTabs = (listener) => tabs.addEventListener("message", ({ data }) => listener(data));
