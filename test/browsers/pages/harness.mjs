// What every page starts with: it keeps what the page says and reports under a name that the driver reads. A page whose
// address has `reports=` posts it there instead, for a browser that nobody drives.

const state = { done: false, step: "importing", result: undefined, error: undefined };
globalThis.headwisePage = state;
const query = new URLSearchParams(location.search);

async function post() {
  const to = query.get("reports");
  if (to) await fetch(to, { method: "POST", mode: "no-cors", body: JSON.stringify(state) });
}

/**
 * Runs the body of a page and reports what it returns or throws. The body may report how far it is, and gets the entry
 * of the package the page's address names.
 */
export async function run(body) {
  try {
    const step = (name) => {
      state.step = name;
      post();
    };
    state.result = await body(step, query.get("entry"));
  } catch (error) {
    state.error = `${error}\n${error.stack}`;
  }
  state.done = true;
  await post();
}
