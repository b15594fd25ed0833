// Real clients of Node against the service: `node clients.mjs ADDRESS` prints JSON.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const axios = require("axios");
const Stripe = require("stripe");
const address = process.argv[2];
const url = new URL(address);
const KEY = "Idempotency-Key";

const answer = (status, body, headers) => ({
  status,
  id: body.id,
  replayed: headers["idempotent-replayed"] === "true",
});

async function withAxios(name, headers) {
  const said = await axios.post(`${address}/orders`, { name }, { headers, validateStatus: () => true });
  return answer(said.status, said.data, said.headers);
}

async function withFetch(name, headers) {
  const said = await fetch(`${address}/orders`, {
    method: "POST",
    body: JSON.stringify({ name }),
    headers: { "content-type": "application/json", ...headers },
  });
  return answer(said.status, await said.json(), Object.fromEntries(said.headers));
}

async function withStripe(name, headers) {
  const stripe = new Stripe("sk_test_x", {
    host: url.hostname,
    port: url.port,
    protocol: "http",
    telemetry: false,
    maxNetworkRetries: 2,
  });
  const options = headers[KEY] ? { idempotencyKey: headers[KEY] } : {};
  try {
    const made = await stripe.customers.create({ name }, options);
    return answer(200, made, made.lastResponse.headers);
  } catch (error) {
    if (!error.statusCode) throw error;
    return { status: error.statusCode, id: null, replayed: false };
  }
}

const seen = async () => (await fetch(`${address}/seen`)).json();
const runs = async () => Object.values((await seen()).runs).reduce((sum, one) => sum + one, 0);

async function tried(send) {
  const before = (await seen()).keys.length;
  await send("alone", {});
  const own = (await seen()).keys[before] !== null;
  const key = randomUUID();
  const first = await send("ann", { [KEY]: key });
  const again = await send("ann", { [KEY]: key });
  const other = await send("bob", { [KEY]: key });
  const lose = { [KEY]: `lose-${randomUUID()}` };
  const count = await runs();
  let last = await send("eve", lose);
  const byItself = last.status < 400;
  if (!byItself) last = await send("eve", lose);
  return {
    own_key: own,
    replayed: again.replayed && !first.replayed && again.id === first.id,
    other: other.status,
    by_itself: byItself,
    after_loss: last.replayed && (await runs()) === count + 1,
  };
}

const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version;
const found = {
  [`stripe-node ${version("stripe")}`]: await tried(withStripe),
  [`axios ${version("axios")}`]: await tried(withAxios),
  "fetch of Node": await tried(withFetch),
};
process.stdout.write(JSON.stringify(found));
