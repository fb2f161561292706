import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { hostHasher, hostSha256 } from "../../../../src/base/platform/host.ts";
import { createSha256, sha256 } from "../../../../src/base/util/bytes.ts";
import { hexOf } from "../../../../src/base/util/errors.ts";
import { createRandom } from "../../../../src/tools/diagnostics/random.ts";

const bytesOf = (text: string) => new TextEncoder().encode(text);

test.each([
  ["", "e3b0c442 98fc1c14 9afbf4c8 996fb924 27ae41e4 649b934c a495991b 7852b855"],
  ["abc", "ba7816bf 8f01cfea 414140de 5dae2223 b00361a3 96177a9c b410ff61 f20015ad"],
  [
    "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
    "248d6a61 d20638b8 e5c02693 0c3e6039 a33ce459 64ff2167 f6ecedd4 19db06c1",
  ],
])("SHA-256 of %j is that of FIPS 180-2", async (text, digest) => {
  const hex = digest.replaceAll(" ", "");
  expect(hexOf(sha256(bytesOf(text))).replaceAll(" ", "")).toBe(hex);
  expect(hexOf(await hostSha256(bytesOf(text))).replaceAll(" ", "")).toBe(hex);
});

test("at every length up to 300 bytes it is that of OpenSSL, also of views that begin anywhere", () => {
  const floats = createRandom(1).floats(100);
  const all = new Uint8Array(floats.buffer);
  for (let length = 0; length <= 300; length++) {
    const bytes = all.subarray(length % 7, (length % 7) + length);
    expect(Buffer.from(sha256(bytes))).toEqual(createHash("sha256").update(bytes).digest());
  }
});

test("of bytes that come in parts it is that of the whole, wherever they are cut", () => {
  const bytes = new Uint8Array(createRandom(2).floats(100).buffer);
  const want = Buffer.from(sha256(bytes));
  for (let first = 0; first <= 200; first += 3)
    for (const second of [0, 1, 63, 64, 65, 128, 190]) {
      for (const hash of [createSha256(), hostHasher()]) {
        hash.update(bytes.subarray(0, first));
        hash.update(bytes.subarray(first, first + second));
        hash.update(bytes.subarray(first + second));
        expect(Buffer.from(hash.digest())).toEqual(want);
      }
    }
});
