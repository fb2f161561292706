/** The build of kernels that start, or the error of those that do not. */
export async function outcomeOf(starting) {
  try {
    const kernels = await starting;
    kernels.release();
    return { build: kernels.build };
  } catch ({ name, code, message }) {
    return { name, code, message };
  }
}
