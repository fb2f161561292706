import { awaitReport, type Browser, STATE } from "./browser.ts";
import { type Call, type Session, startWebKit } from "./webkit-session.ts";

/** WebKitGTK, whose pages have a session each. */
export async function startWebKitPages(name: string, switches: Readonly<Record<string, string>>): Promise<Browser> {
  const webkit = await startWebKit(name, switches);
  const withSession = async <T>(use: (call: Call, session: Session) => Promise<T>): Promise<T> => {
    const { call, session, end } = await webkit.begin();
    try {
      const result = await use(call, session);
      await call("DELETE", `/session/${session.sessionId}`);
      return result;
    } finally {
      await end();
    }
  };
  try {
    return {
      name,
      version: await withSession(async (_, { capabilities }) => capabilities.browserVersion),
      visit: (url) =>
        withSession(async (call, { sessionId }) => {
          await call("POST", `/session/${sessionId}/url`, { url });
          const script = { script: `return ${STATE}`, args: [] };
          return awaitReport(url, () => call("POST", `/session/${sessionId}/execute/sync`, script) as Promise<string>);
        }),
      close: webkit.close,
    };
  } catch (error) {
    await webkit.close();
    throw error;
  }
}
