// What every page starts with: it keeps what the page says and reports under a name that the driver reads.

const state = { done: false, step: "importing", result: undefined, error: undefined };
globalThis.headwisePage = state;

/**
 * Runs the body of a page and reports what it returns or throws. The body may report how far it is, and gets the entry
 * of the package the page's address names.
 */
export async function run(body) {
  try {
    const step = (name) => {
      state.step = name;
    };
    state.result = await body(step, new URLSearchParams(location.search).get("entry"));
  } catch (error) {
    state.error = `${error}\n${error.stack}`;
  }
  state.done = true;
}
