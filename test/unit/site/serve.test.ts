// The server of the site, which the tests of its pages use too.

import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { serveSite } from "../../../site/serve.ts";

/** What a server answers to a request line of any form. */
async function ask(port: number, line: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.write(`${line}\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
  return text(socket);
}

test.each(["GET // HTTP/1.1", "GET http:// HTTP/1.1", "GET /../package.json HTTP/1.1", "GET /%00 HTTP/1.1"])(
  "%s is not found, and the server goes on",
  async (line) => {
    const { url, server } = await serveSite();
    try {
      expect(await ask(Number(new URL(url).port), line)).toMatch(/^HTTP\/1\.1 404 /);
      expect((await fetch(`${url}nothing`)).status).toBe(404);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  },
);
