// Values by name in the browser's storage, where there is one.

const [DATABASE, STORE] = ["headwise", "kept"];

/** Stores a value; a browser without storage forgets it. */
export async function keep(name: string, value: unknown): Promise<void> {
  await inStore("readwrite", (store) => store.put(value, name)).catch(() => {});
}

/** What was stored under the name last. */
export function kept(name: string): Promise<unknown> {
  return inStore("readonly", (store) => store.get(name)).catch(() => undefined);
}

async function inStore<T>(mode: IDBTransactionMode, work: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await resultOf(opening);
  try {
    return await resultOf(work(database.transaction(STORE, mode).objectStore(STORE)));
  } finally {
    database.close();
  }
}

const resultOf = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
