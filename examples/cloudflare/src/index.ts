// The Worker's entry point: routes, and checks that need no conversation, so that a bad request starts no object.

import { checkAsk } from "./ask.ts";
import type { Conversation, Env } from "./conversation.ts";
import { engine } from "./engine.ts";
import { HttpError, json, readJson, respond } from "./http.ts";

export { Conversation } from "./conversation.ts";

type Handler = () => Response | Promise<Response>;

export default {
  fetch(request, env) {
    return respond(() => {
      const { pathname, searchParams } = new URL(request.url);
      const handlers = routes(request, env, pathname, searchParams);
      if (!handlers) throw new HttpError(404, "not_found", `there is nothing at ${pathname}`);
      const handler = handlers[request.method];
      if (handler) return handler();
      const allow = Object.keys(handlers).join(", ");
      throw new HttpError(405, "method_not_allowed", `${pathname} takes ${allow}`, { allow });
    });
  },
} satisfies ExportedHandler<Env>;

/** What each method does at a path; undefined where there is nothing. */
function routes(
  request: Request,
  env: Env,
  path: string,
  query: URLSearchParams,
): Readonly<Record<string, Handler>> | undefined {
  const [, version, sessions, id, part, ...rest] = path.split("/");
  if (version !== "v1" || sessions !== "sessions" || rest.length > 0) return undefined;
  if (id === undefined) return { POST: () => reach(env, env.CONVERSATIONS.newUniqueId(), (object) => object.create()) };
  const find = (call: Call) => reach(env, idOf(env, id), call);
  if (part === undefined)
    return {
      GET: () => {
        const from = fromOf(query);
        return find((object) => object.describe(from));
      },
      DELETE: () => find((object) => object.remove()),
    };
  if (part === "text") return { POST: () => answer(request, find) };
  if (part === "debug" && engine.limits.DEBUG === 1)
    return {
      GET: () => find((object) => object.inspect()),
      DELETE: () => abort(env, id),
    };
  return undefined;
}

type Call = (object: DurableObjectStub<Conversation>) => Promise<Response>;

async function answer(request: Request, find: (call: Call) => Promise<Response>): Promise<Response> {
  // A character of JSON takes up to six bytes.
  const body = await readJson(request, 6 * engine.limits.MAX_PROMPT + 1024);
  const ask = checkAsk(body, engine.limits, engine.tokenizer);
  return find((object) => object.answer(ask));
}

/** Calls an object; one that is just being reset, say by a deployment, can be asked again. */
async function reach(env: Env, id: DurableObjectId, call: Call): Promise<Response> {
  try {
    return await call(env.CONVERSATIONS.get(id));
  } catch (error) {
    console.error(error);
    throw new HttpError(503, "session_restarting", "the session is restarting: ask again", { "retry-after": "1" });
  }
}

async function abort(env: Env, id: string): Promise<Response> {
  // The object is gone before it can answer.
  await env.CONVERSATIONS.get(idOf(env, id))
    .abort()
    .catch(() => {});
  return json({ aborted: id }, 202);
}

function idOf(env: Env, id: string): DurableObjectId {
  try {
    return env.CONVERSATIONS.idFromString(id);
  } catch {
    throw new HttpError(404, "no_session", "there is no such session");
  }
}

function fromOf(query: URLSearchParams): number {
  const from = Number(query.get("from") ?? 0);
  if (Number.isInteger(from) && from >= 0) return from;
  throw new HttpError(400, "bad_request", "from must be an integer >= 0");
}
