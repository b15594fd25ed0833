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
 *   follow("/events/", { jobs: ["job-1", "job-2", "order-42/*"], ... }); // on one connection
 *
 * It reads a response of fetch and does not use EventSource, which gives up for good when a server
 * answers 503, reconnects at the same time as all other clients, does not say why it was refused,
 * sends no headers, and cannot distinguish a silent connection from a dead one.
 */

const OPTIONS = {
  /** The jobs to follow on one connection, if `url` names none. "order-42/*" means a whole topic. */
  jobs: null,
  /** The id of the last event that was seen; go on after it. */
  after: null,
  /** The number of that event, instead of `after`: all events with a greater one follow. */
  lastSeq: null,
  /** Ask for the state of the job at the start of each connection, and after each resync. */
  state: false,
  onEvent: null,
  /** Called with the event with the greatest seq, or null. It has no id. Of `jobs`, also the job. */
  onState: null,
  /**
   * Called with the reason when what was shown must be dropped. The rest of the log follows. Of
   * `jobs`, also called with the job; what was shown of the others stays.
   */
  onResync: null,
  /** Called with one of `jobs` that is not followed, or not any more, and the reason. */
  onRefused: null,
  /**
   * Called with "connecting", "live", "waiting", "offline", "refused", "failed" or "closed", and
   * details.
   */
  onStatus: null,
  /** Returns whether an event is the last one, after which to close. Of `jobs`, all must have it. */
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
  /**
   * Milliseconds without a byte, or without headers, after which a connection is dead: three
   * heartbeats.
   */
  silence: 45_000,
};
/** The place before the first event of a log that does not exist yet. */
const START = "0.0.-";
const NO_EPOCH = "0";
/** A place in a log. Where there are several jobs, a tag that stands for one of them comes first. */
const PLACE = /^(?:([0-9a-f]{8})\.)?([0-9a-f]{1,32})\.(0|[1-9][0-9]{0,12})\.([0-9a-f]{1,32}|-)$/;
/** Status codes below 500 after which to try again. All others but 200 are final. */
const PASSING = new Set([408, 425, 429]);
/** The longest Retry-After that is respected, in seconds. */
const LONGEST_RETRY = 600;

/** Follow the job that the gateway serves at `url`, or several `jobs` there, until `close()`. */
export function follow(url, options = {}) {
  for (const name of Object.keys(options)) {
    if (!(name in OPTIONS)) throw new TypeError(`follow() has no option ${name}`);
  }
  if (options.jobs && !Array.isArray(options.jobs)) {
    throw new TypeError(`jobs of follow() is a list, such as ["${options.jobs}"]`);
  }
  return new Following(new URL(url, globalThis.location?.href), { ...OPTIONS, ...options });
}

class Following {
  #url;
  #options;
  /** The id of the last event that was handed over. It tells the gateway where to go on. */
  #last;
  /** Our places by their tag: of one job, or of several. */
  #places = new Map();
  #lastSeq;
  /** How often in a row an event was not the next one, by the tag of its job. */
  #gaps = new Map();
  /** The jobs whose last event has come. */
  #done = new Set();
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
    this.#last = options.after || null;
    for (const place of placesOf(this.#last)) this.#places.set(place.tag, place);
    this.#lastSeq = this.#last === null ? options.lastSeq : null;
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
    return this.#last;
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
    const chosen = this.#last === null && this.#lastSeq !== null;
    const connection = { abort, again: false, chosen, begun: new Set(), states: new Map(), parts: 0 };
    this.#connection = connection;
    this.#say("connecting");
    let watchdog = this.#watchdog(abort);
    try {
      const response = await fetch(this.#address(), {
        headers: await this.#headers(abort.signal),
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
    for (const job of this.#options.jobs ?? []) url.searchParams.append("job", job);
    if (this.#last !== null) url.searchParams.set("after", this.#last);
    else if (this.#lastSeq !== null) url.searchParams.set("last_seq", this.#lastSeq);
    if (this.#options.state) url.searchParams.set("state", "1");
    return url;
  }

  /** Return the headers. Throw if they are not there when the connection is given up. */
  async #headers(signal) {
    const { headers } = this.#options;
    const given = typeof headers === "function" ? headers({ renew: this.#renew }) : headers;
    const cut = new Promise((_, fail) => signal.addEventListener("abort", fail));
    const own = await Promise.race([given, cut]);
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
    const job = this.#options.jobs ? value?.job_id : undefined;
    if (message.type === "state") {
      const state = this.#options.jobs ? value.state : value;
      connection.states.set(job, state);
      this.#hand("onState", state, job);
    } else if (message.type === "resync") {
      this.#resync(connection, value.reason, job, message.id);
    } else if (message.type === "refused") {
      this.#hand("onRefused", job, value.reason);
      if (this.#options.until) this.#finished(job);
    } else if (message.type === "message") {
      this.#event(connection, message.id, value);
    }
  }

  #event(connection, id, body) {
    const [place] = placesOf(id);
    const known = this.#places.get(place?.tag);
    if (place && known?.id === place.id) return; // it came twice
    if (place && known?.epoch === place.epoch && place.offset < known.offset) return;
    const next = known ? known.offset + 1 : 1;
    const follows = !known || known.epoch === place?.epoch;
    if (!place || (!connection.chosen && !(follows && place.offset === next))) {
      this.#missing(connection, place?.tag, body.job_id);
      return;
    }
    this.#last = id;
    this.#places.set(place.tag, place);
    this.#lastSeq = null;
    this.#gaps.delete(place.tag);
    connection.begun.add(place.tag);
    const event = { ...body, id, offset: place.offset };
    this.#hand("onEvent", event);
    if (!this.#closed && this.#options.until?.(event)) this.#finished(body.job_id);
  }

  /** Close after the last event of the job, or of all jobs. A topic may always have others. */
  #finished(job) {
    this.#done.add(job);
    if ((this.#options.jobs ?? []).every((name) => this.#done.has(name))) this.close();
  }

  /** After a gap, ask again from our place, and the second time from the start. */
  #missing(connection, tag, job) {
    const gaps = (this.#gaps.get(tag) ?? 0) + 1;
    this.#gaps.set(tag, gaps);
    if (gaps > 1) this.#forget(tag, "gap", job);
    connection.abort.abort();
  }

  /** Start again at `id`, which has the place before the log that follows. */
  #resync(connection, reason, job, id) {
    const [place] = placesOf(id);
    this.#forget(place?.tag, reason, job);
    if (place && id !== START) this.#last = id;
    if (place && place.epoch !== NO_EPOCH) this.#places.set(place.tag, place);
    if (!this.#options.state) return;
    if (!connection.begun.has(place?.tag)) {
      this.#hand("onState", connection.states.get(job), job); // as new as the log that follows
    } else {
      connection.again = true;
      connection.abort.abort();
    }
  }

  /** Forget our place in the job of this tag, and leave those in others as they are. */
  #forget(tag, reason, job) {
    this.#places.delete(tag);
    const others = (this.#last ?? "").split("~").filter((one) => tag && !one.startsWith(`${tag}.`));
    this.#last = others.join("~") || null;
    this.#lastSeq = null;
    this.#gaps.delete(tag);
    this.#done.delete(job);
    this.#hand("onResync", reason, job);
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

/** Return the places in an id, that of its event first. */
function placesOf(id) {
  const found = (id ?? "").split("~").map((part) => PLACE.exec(part));
  if (found.includes(null)) return [];
  return found.map(([one, tag, epoch, offset]) => ({ id: one, tag, epoch, offset: Number(offset) }));
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
