/**
 * Follow a job through a gateway of Oncekey: each event once, in order, without silent gaps.
 *
 *   import { follow } from "./oncekey-events.js";
 *
 *   const following = follow("/events/job-1", {
 *     onEvent: (event) => show(event),   // {stage, seq, data, ..., id, offset}
 *     onResync: (reason) => forget(),    // drop what was shown; the log follows
 *     until: (event) => event.seq === 51,
 *   });
 *   following.close();
 *
 * It reads a response of fetch and does not use EventSource, which gives up for good when a server
 * answers 503, reconnects at the same time as all other clients, does not say why it was refused,
 * sends no headers, and cannot distinguish a silent connection from a dead one.
 */

const OPTIONS = {
  /** The id of the last event that was seen; go on after it. */
  after: null,
  /** The number of that event, instead of `after`: all events with a greater one follow. */
  lastSeq: null,
  /** Ask for the state of the job at the start of each connection, and after each resync. */
  state: false,
  onEvent: null,
  /** Called with the event with the greatest seq, or null. It has no id. */
  onState: null,
  /** Called with the reason when what was shown must be dropped. The rest of the log follows. */
  onResync: null,
  /**
   * Called with "connecting", "live", "waiting", "offline", "refused", "failed" or "closed", and
   * details.
   */
  onStatus: null,
  /** Returns whether an event is the last one, after which to close. */
  until: null,
  /**
   * Headers of the request, or a function that returns them, or a promise of them, for each
   * connection. After a 401 it is called with `{ renew: true }`: a second 401 in a row is final.
   */
  headers: null,
  credentials: "same-origin",
  /** The first and the longest pause before a new connection, in milliseconds. */
  pause: 500,
  longestPause: 15_000,
  /** Failures in a row after which to end with the status "failed". */
  retries: 100,
  /** Milliseconds without a byte after which a connection is dead: three heartbeats. */
  silence: 45_000,
};
/** The place before the first event of a log that does not exist yet. */
const START = "0.0.-";
const ID = /^([0-9a-f]{1,32})\.(0|[1-9][0-9]{0,12})\.([0-9a-f]{1,32}|-)$/;
/** Status codes below 500 after which to try again. All others but 200 are final. */
const PASSING = new Set([408, 425, 429]);
/** The longest Retry-After that is respected, in seconds. */
const LONGEST_RETRY = 600;

/** Follow the job whose events the gateway serves at `url`, until `close()`. */
export function follow(url, options = {}) {
  for (const name of Object.keys(options)) {
    if (!(name in OPTIONS)) throw new TypeError(`follow() has no option ${name}`);
  }
  return new Following(new URL(url, globalThis.location?.href), { ...OPTIONS, ...options });
}

class Following {
  #url;
  #options;
  #place = null;
  #lastSeq;
  #gaps = 0;
  #failures = 0;
  /** Failures in a row, of connections and of the function for headers. */
  #tries = 0;
  /** Whether the last answer was a 401. */
  #renew = false;
  #retryAfter = 0;
  #closed = false;
  #connection = null;
  #hurry = () => {};
  #listening = new AbortController();

  constructor(url, options) {
    this.#url = url;
    this.#options = options;
    // An id that is none of ours is sent as it is: the gateway answers with a resync.
    if (options.after) this.#place = placeOf(options.after) ?? { id: options.after };
    this.#lastSeq = this.#place === null ? options.lastSeq : null;
    const { signal } = this.#listening;
    globalThis.addEventListener?.("online", () => this.#again(), { signal });
    // A connection without a network only seems to be alive, and resuming costs nothing.
    globalThis.addEventListener?.("offline", () => this.#connection?.abort.abort(), { signal });
    // The connection of a page that comes back from the browser's cache was cut off.
    globalThis.addEventListener?.("pageshow", (e) => e.persisted && this.#again(), { signal });
    this.#run();
  }

  /** The id of the last event that was handed over, for `after`. */
  get last() {
    return this.#place?.id ?? null;
  }

  /** Stop following. No handler gets another event. */
  close() {
    this.#end("closed");
  }

  #end(status, details) {
    if (this.#closed) return;
    this.#closed = true;
    this.#listening.abort();
    this.#connection?.abort.abort();
    this.#hurry();
    this.#say(status, details);
  }

  /** Connect again at once, since the network has changed. */
  #again() {
    this.#failures = this.#tries = 0; // the network may need a moment, but not the longest pause
    if (this.#connection !== null) {
      this.#connection.again = true;
      this.#connection.abort.abort();
    }
    this.#hurry();
  }

  async #run() {
    await null; // follow() returns before the first handler is called
    while (!this.#closed) {
      const again = await this.#visit();
      if (this.#closed || again) continue;
      this.#tries += 1;
      if (this.#tries > this.#options.retries) this.#end("failed", { tries: this.#tries });
      else await this.#rest();
    }
  }

  /** Serve one connection until it ends. Return whether to connect again at once. */
  async #visit() {
    const abort = new AbortController();
    // By number, only some events come: their offsets do not follow each other.
    const chosen = this.#place === null && this.#lastSeq !== null;
    const connection = { abort, again: false, chosen, fresh: true, state: null, parts: 0 };
    this.#connection = connection;
    this.#say("connecting");
    let watchdog = this.#watchdog(abort);
    try {
      const response = await fetch(this.#address(), {
        headers: await this.#headers(),
        credentials: this.#options.credentials,
        cache: "no-store",
        signal: abort.signal,
      });
      if (!this.#accepted(response)) return connection.again;
      this.#say("live");
      const decoder = new TextDecoder();
      const parser = new Parser(
        (message) => abort.signal.aborted || this.#take(connection, message),
        (pause) => (this.#options.pause = pause),
      );
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        clearTimeout(watchdog);
        watchdog = this.#watchdog(abort);
        connection.parts += 1;
        // A server that sends one part and hangs up does not count as working.
        if (connection.parts > 1) this.#failures = this.#tries = 0;
        parser.feed(decoder.decode(value, { stream: true }));
      }
    } catch {
      return connection.again; // cut off, by the network or by us
    } finally {
      clearTimeout(watchdog);
      abort.abort();
      this.#connection = null;
    }
  }

  #watchdog(abort) {
    const { silence } = this.#options;
    return silence ? setTimeout(() => abort.abort(), silence) : undefined;
  }

  #address() {
    const url = new URL(this.#url);
    // In the address, not in a header: for other origins a header would need permission (CORS).
    if (this.#place !== null) url.searchParams.set("after", this.#place.id);
    else if (this.#lastSeq !== null) url.searchParams.set("last_seq", this.#lastSeq);
    if (this.#options.state) url.searchParams.set("state", "1");
    return url;
  }

  async #headers() {
    const { headers } = this.#options;
    const own = typeof headers === "function" ? await headers({ renew: this.#renew }) : headers;
    return { ...own, Accept: "text/event-stream" };
  }

  /** Return whether events follow. End if another try cannot change the answer. */
  #accepted(response) {
    const { status } = response;
    const stream = response.headers.get("content-type")?.startsWith("text/event-stream");
    if (status === 200 && stream) {
      this.#renew = false;
      return true;
    }
    if (status === 401 && typeof this.#options.headers === "function" && !this.#renew) {
      this.#renew = true;
      this.#connection.again = true;
      return false;
    }
    const seconds = Number(response.headers.get("retry-after")) || 0;
    this.#retryAfter = 1000 * Math.min(seconds, LONGEST_RETRY);
    if (status < 500 && !PASSING.has(status)) this.#end("refused", { code: status });
    return false;
  }

  #take(connection, message) {
    let value;
    try {
      value = JSON.parse(message.data);
    } catch {
      connection.abort.abort(); // what follows cannot be trusted either
      return;
    }
    this.#failures = this.#tries = 0;
    if (message.type === "state") {
      connection.state = value;
      this.#hand("onState", value);
    } else if (message.type === "resync") {
      this.#resync(connection, value.reason, message.id);
    } else if (message.type === "message") {
      this.#event(connection, message.id, value);
    }
  }

  #event(connection, id, body) {
    const place = placeOf(id);
    const known = this.#place;
    if (place !== null && known?.id === id) return; // it came twice
    if (place !== null && known?.epoch === place.epoch && place.offset < known.offset) return;
    const next = known === null ? 1 : known.offset + 1;
    const follows = known === null || known.epoch === place?.epoch;
    if (place === null || (!connection.chosen && !(follows && place.offset === next))) {
      this.#missing(connection);
      return;
    }
    this.#place = place;
    this.#lastSeq = null;
    this.#gaps = 0;
    connection.fresh = false;
    const event = { ...body, id, offset: place.offset };
    this.#hand("onEvent", event);
    if (!this.#closed && this.#options.until?.(event)) this.close();
  }

  /** After a gap, ask again from our place, and the second time from the start. */
  #missing(connection) {
    this.#gaps += 1;
    if (this.#gaps > 1) this.#forget("gap");
    connection.abort.abort();
  }

  /** Start again at `id`, the place before the log that follows. */
  #resync(connection, reason, id) {
    this.#forget(reason);
    if (id !== START) this.#place = placeOf(id);
    if (!this.#options.state) return;
    if (connection.fresh) {
      this.#hand("onState", connection.state); // it is as new as the log that follows
    } else {
      connection.again = true;
      connection.abort.abort();
    }
  }

  #forget(reason) {
    this.#place = null;
    this.#lastSeq = null;
    this.#gaps = 0;
    this.#hand("onResync", reason);
  }

  /** Wait, twice as long after each failure, with a random part that differs between clients. */
  #rest() {
    const { pause, longestPause } = this.#options;
    const most = Math.min(longestPause, pause * 2 ** this.#failures);
    this.#failures = Math.min(this.#failures + 1, 30);
    const length = Math.max(this.#retryAfter, (most * (1 + Math.random())) / 2);
    this.#retryAfter = 0;
    const status = globalThis.navigator?.onLine === false ? "offline" : "waiting";
    this.#say(status, { retryIn: Math.round(length) });
    return new Promise((done) => {
      const timer = setTimeout(done, length);
      this.#hurry = () => {
        clearTimeout(timer);
        done();
      };
    });
  }

  #say(status, details = {}) {
    this.#hand("onStatus", status, details);
  }

  /** Call a handler. Report what it throws as uncaught, and go on. */
  #hand(name, ...values) {
    try {
      this.#options[name]?.(...values);
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}

function placeOf(id) {
  const found = ID.exec(id);
  return found && { id, epoch: found[1], offset: Number(found[2]), mark: found[3] };
}

/** Parses a text/event-stream, in parts of any size, as the HTML standard says. */
export class Parser {
  #onMessage;
  #onRetry;
  #rest = "";
  #afterReturn = false;
  #id = "";
  #type = "";
  #data = [];

  constructor(onMessage, onRetry = () => {}) {
    this.#onMessage = onMessage;
    this.#onRetry = onRetry;
  }

  feed(text) {
    if (text === "") return;
    // A line may end in CR LF, and a part may end between the two.
    const part = this.#afterReturn && text.startsWith("\n") ? text.slice(1) : text;
    this.#afterReturn = text.endsWith("\r");
    const lines = (this.#rest + part).split(/\r\n|\n|\r/);
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  }

  #line(line) {
    if (line === "") {
      this.#dispatch();
      return;
    }
    const [, field, value] = /^([^:]*)(?::[ ]?(.*))?$/su.exec(line);
    if (field === "data") this.#data.push(value ?? "");
    else if (field === "event") this.#type = value ?? "";
    else if (field === "id" && !value?.includes("\0")) this.#id = value ?? "";
    else if (field === "retry" && /^[0-9]+$/.test(value)) this.#onRetry(Number(value));
  }

  #dispatch() {
    const [data, type] = [this.#data, this.#type || "message"];
    this.#data = [];
    this.#type = "";
    if (data.length > 0) this.#onMessage({ type, data: data.join("\n"), id: this.#id });
  }
}
