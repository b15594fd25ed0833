"""The JavaScript client in a real Chromium, against a server that answers as it is told."""

import random

import pytest

from tests.patience import PATIENCE
from tests.system.browser.scripted import (
    Answer,
    Scripted,
    event,
    event_of,
    events,
    places,
    refused,
    resync,
    resync_of,
    state,
    tagged,
)

pytestmark = pytest.mark.xdist_group("browser")

FOLLOW = """async (options) => {
  const { follow } = await import("/oncekey-events.js");
  window.log = [];
  window.seen = () => log.filter(([what]) => what === "event").map(([, offset]) => offset);
  window.said = () => log.filter(([what]) => what === "status").map(([, status]) => status);
  const until = options.until;
  window.following = follow("/job", {
    pause: 1,
    longestPause: 20,
    onEvent: (event) => log.push(["event", event.offset, event.id, event.seq, event.job_id]),
    onState: (state, job) => log.push(["state", state && state.seq, job]),
    onResync: (reason, job) => log.push(["resync", reason, job]),
    onRefused: (job, reason) => log.push(["refused", job, reason]),
    onStatus: (status, details) => log.push(["status", status, details]),
    ...options,
    ...(until && { until: (event) => event.seq === until }),
  });
}"""


@pytest.fixture(autouse=True)  # first, so that it outlives the page
def server():
    made = Scripted().start()
    yield made
    made.stop()


@pytest.fixture
def follow(page, server):
    """A page that follows the job of the server."""

    def follow(*answers, **options):
        server.asked.clear()
        server.answers[:] = answers or server.answers
        page.goto(server.url)
        page.evaluate(FOLLOW, options)
        return page

    return follow


@pytest.fixture
def failing(complaints):
    """The browser itself complains of answers that fail; nothing else may."""
    yield
    complaints[:] = [one for one in complaints if "Failed to load resource" not in one]


def log(page, *kinds):
    return [one[:2] for one in page.evaluate("log") if one[0] in kinds]


PARSED = """async (cases) => {
  const { Parser } = await import("/oncekey-events.js");
  return cases.map((parts) => {
    const got = [];
    const parser = new Parser((message) => got.push(message), (pause) => got.push(pause));
    parts.forEach((part) => parser.feed(part));
    return got;
  });
}"""
TEXT = (
    ": a comment\n\nid: a.1.b\ndata: one\n\r\nevent: other\r\ndata:two\r\ndata: \u2028 three \r\n"
    "\r\nretry: 30\rretry: 3x\rid: x\0y\rdata\r\rid\n: \ndata:  x: ä\nunknown: 1\n\ndata: cut off"
)
MESSAGES = [
    {"type": "message", "data": "one", "id": "a.1.b"},
    {"type": "other", "data": "two\n\u2028 three ", "id": "a.1.b"},
    30,
    {"type": "message", "data": "", "id": "a.1.b"},
    {"type": "message", "data": " x: ä", "id": ""},
]


def test_the_parser_reads_what_the_standard_says_wherever_it_is_cut(page, server):
    page.goto(server.url)
    cases = [[TEXT], list(TEXT), *([TEXT[:n], TEXT[n:]] for n in range(len(TEXT)))]
    assert page.evaluate(PARSED, cases) == [MESSAGES] * len(cases)


@pytest.mark.row("E5")
def test_a_client_cut_off_at_any_byte_has_every_event_once_and_in_order(follow, server, failing):
    chance = random.Random(7)  # noqa: S311 - no secret
    last = 40

    class Log(list[Answer]):
        """The rest of the log after the client's place, cut off somewhere."""

        def pop(self, _):
            after = server.asked[-1].get("after", "ab.0.-")
            body = events(int(after.split(".")[1]) + 1, last, text="ä\n")
            cut = chance.choice([chance.randrange(len(body)), len(body)])
            return Answer((body[:cut],), end=chance.choice(["cut", "end"]))

    server.answers = Log([Answer()] * 2)
    page = follow(until=last)
    page.wait_for_function("said().includes('closed')")
    assert page.evaluate("seen()") == list(range(1, last + 1))
    assert log(page, "resync") == []
    assert page.evaluate("following.last") == f"ab.{last}.0c"


def test_what_comes_twice_is_handed_over_once(follow):
    page = follow(Answer((events(1, 3), events(2, 4))), until=4)
    page.wait_for_function("said().includes('closed')")
    assert page.evaluate("seen()") == [1, 2, 3, 4]


def test_it_goes_on_after_the_event_that_a_page_names(follow, server):
    page = follow(Answer((events(3, 4),)), after="ab.2.0c", until=4)
    page.wait_for_function("said().includes('closed')")
    assert page.evaluate("seen()") == [3, 4]
    assert server.asked == [{"after": "ab.2.0c"}]


def test_it_goes_on_after_a_number_until_it_has_an_id(follow, server):
    first = Answer((events(7, 8),), end="end")
    page = follow(first, Answer((events(9, 9),)), lastSeq=12, until=9)
    page.wait_for_function("said().includes('closed')")
    assert page.evaluate("seen()") == [7, 8, 9]
    assert server.asked == [{"last_seq": "12"}, {"after": "ab.8.0c"}]


@pytest.mark.row("E5")
def test_a_resync_is_told_and_the_log_that_follows_counts(follow, server):
    answer = Answer((resync("trimmed", "cd.4.-") + events(5, 6, epoch="cd"),), end="end")
    page = follow(answer, Answer((event(7, epoch="cd"),)), after="nonsense", until=7)
    page.wait_for_function("said().includes('closed')")
    told = log(page, "resync", "event")
    assert told == [["resync", "trimmed"], ["event", 5], ["event", 6], ["event", 7]]
    assert server.asked == [{"after": "nonsense"}, {"after": "cd.6.0c"}]


def test_a_place_that_does_not_count_is_not_named_again(follow, server):
    page = follow(Answer((resync("epoch"),), end="end"), Answer((event(1),)), after="ab.9.0c")
    page.wait_for_function("seen().length")
    assert server.asked == [{"after": "ab.9.0c"}, {}]


def test_cut_off_after_a_resync_it_goes_on_before_what_is_left(follow, server):
    answers = Answer((resync("trimmed", "cd.4.-"),), end="end"), Answer((event(5, epoch="cd"),))
    page = follow(*answers, after="ab.9.0c")
    page.wait_for_function("seen().length")
    assert server.asked == [{"after": "ab.9.0c"}, {"after": "cd.4.-"}]


def test_an_event_that_is_not_the_next_is_asked_for_again(follow, server):
    for wrong in (event(4), event(3, epoch="cd"), event(2, mark="ff"), b"data: {}\n\n"):
        gap = Answer((events(1, 2) + wrong + events(5, 6),))
        page = follow(gap, Answer((events(3, 6),)), until=6)
        page.wait_for_function("said().includes('closed')")
        assert page.evaluate("seen()") == [1, 2, 3, 4, 5, 6]
        assert log(page, "resync") == []
        assert server.asked == [{}, {"after": "ab.2.0c"}]


def test_a_gap_that_stays_is_a_resync_and_never_silent(follow, server):
    answers = [Answer((events(1, 2) + event(4),)), Answer((event(4),)), Answer((events(1, 4),))]
    page = follow(*answers, until=4)
    page.wait_for_function("said().includes('closed')")
    told = [["event", n] for n in (1, 2)], [["event", n] for n in (1, 2, 3, 4)]
    assert log(page, "resync", "event") == [*told[0], ["resync", "gap"], *told[1]]
    assert server.asked == [{}, {"after": "ab.2.0c"}, {}]


def test_a_message_that_is_no_json_is_asked_for_again(follow, server):
    page = follow(Answer((event(1) + b"id: ab.2.0c\ndata: {\n\n",)), Answer((event(2),)), until=2)
    page.wait_for_function("said().includes('closed')")
    assert page.evaluate("seen()") == [1, 2]


def test_the_state_comes_first_and_again_after_a_resync(follow, server):
    page = follow(
        Answer((state(30), events(1, 2), resync("epoch", "cd.8.-") + event(9, epoch="cd"))),
        Answer((state(40), resync("trimmed", "cd.4.-") + event(5, epoch="cd"))),
        state=True,
        until=5,
    )
    page.wait_for_function("said().includes('closed')")
    assert log(page, "state", "resync", "event") == [
        ["state", 30],
        ["event", 1],
        ["event", 2],
        ["resync", "epoch"],
        ["state", 40],
        ["resync", "trimmed"],
        ["state", 40],
        ["event", 5],
    ]
    assert server.asked == [{"state": "1"}, {"after": "cd.8.-", "state": "1"}]


def test_a_server_in_trouble_is_asked_again(follow, failing):
    for status in (500, 503, 429, 408):
        page = follow(Answer(status=status, end="end"), Answer((event(1),)))
        page.wait_for_function("seen().length")
        assert page.evaluate("said()") == ["connecting", "waiting", "connecting", "live"]


def test_a_refusal_is_final_and_told(follow, server, failing):
    for status, kind in ((403, {}), (404, {}), (204, {}), (200, {"Content-Type": "text/html"})):
        page = follow(Answer(status=status, headers=kind, end="end"))
        page.wait_for_function("said().length === 2")
        assert page.evaluate("log.at(-1)") == ["status", "refused", {"code": status}]
        page.evaluate("new Promise(done => setTimeout(done, 50))")
        assert len(server.asked) == 1


def test_pauses_double_up_to_the_longest_and_are_never_in_step(follow, failing):
    page = follow(Answer(status=503, end="end"), pause=8, longestPause=64)
    page.wait_for_function("said().filter((one) => one === 'waiting').length > 11")
    lengths = page.evaluate(
        "log.filter(([, one]) => one === 'waiting').map((one) => one[2].retryIn)"
    )
    page.evaluate("following.close()")
    for number, length in enumerate(lengths):
        most = min(64, 8 * 2**number)
        assert most // 2 <= length <= most
    assert len(set(lengths[3:])) > 1


def test_a_server_that_wants_a_pause_gets_it(follow, failing):
    page = follow(Answer(status=503, headers={"Retry-After": "7"}, end="end"))
    page.wait_for_function("said().includes('waiting')")
    assert page.evaluate("log.at(-1)[2].retryIn") == 7000


def test_a_server_says_how_long_the_first_pause_is(follow):
    page = follow(Answer((b"retry: 600000\n\n",), end="end"), longestPause=10**9)
    page.wait_for_function("said().includes('waiting')")
    assert 300_000 <= page.evaluate("log.at(-1)[2].retryIn") <= 600_000


def test_a_silent_connection_is_given_up(follow, server):
    page = follow(Answer((event(1),)), Answer((b":\n\n", event(2))), silence=1000)
    page.wait_for_function("seen().length === 2")
    assert server.asked[:2] == [{}, {"after": "ab.1.0c"}]


def test_online_again_it_does_not_wait(follow, context, server, failing):
    page = follow(Answer((event(1),)), Answer((event(2),)), pause=600_000, longestPause=600_000)
    page.wait_for_function("seen().length === 1")
    context.set_offline(True)
    page.wait_for_function("said().at(-1) === 'offline'")
    context.set_offline(False)
    # The page may be told before the network is there; then it is told once more.
    again = "seen().length === 2 || (dispatchEvent(new Event('online')), false)"
    page.wait_for_function(again, polling=1000)
    assert server.asked[-1] == {"after": "ab.1.0c"}


def test_closed_it_hangs_up_and_hands_over_nothing(follow, server):
    page = follow(Answer((event(1),)))
    page.wait_for_function("seen().length === 1")
    page.evaluate("following.close()")
    assert server.left.wait(PATIENCE)
    assert page.evaluate("said()") == ["connecting", "live", "closed"]
    page.evaluate("following.close()")
    page.evaluate("dispatchEvent(new Event('online'))")
    assert len(server.asked) == 1


def test_closed_while_it_waits_it_does_not_come_back(page, server, failing):
    server.answers = [Answer(status=503, end="end")]
    page.goto(server.url)
    page.evaluate(
        """async () => {
          const { follow } = await import("/oncekey-events.js");
          await new Promise((done) => {
            const following = follow("/job", {
              pause: 50,
              onStatus: (status) => status === "waiting" && (following.close(), done()),
            });
          });
          await new Promise((done) => setTimeout(done, 150));
        }"""
    )
    assert len(server.asked) == 1


def test_headers_are_made_anew_for_each_connection(page, server):
    server.answers = [Answer((event(1),), end="end"), Answer((event(2),))]
    page.goto(server.url)
    page.evaluate(
        """async () => {
          const { follow } = await import("/oncekey-events.js");
          let n = 0;
          await new Promise((done) => follow("/job", {
            pause: 1, headers: () => ({ Authorization: `t${++n}` }), until: (e) => e.seq === 2,
            onStatus: (status) => status === "closed" && done(),
          }));
        }"""
    )
    assert [one["Authorization"] for one in server.headers] == ["t1", "t2"]


def test_a_handler_that_throws_stops_nothing_and_is_heard(page, server, complaints):
    server.answers = [Answer((events(1, 3),))]
    page.goto(server.url)
    seen = page.evaluate(
        """async () => {
          const { follow } = await import("/oncekey-events.js");
          const seen = [];
          await new Promise((done) => follow("/job", {
            onEvent: (event) => { seen.push(event.seq); throw new Error("mine"); },
            until: (event) => event.seq === 3 && (done(), true),
          }));
          return seen;
        }"""
    )
    assert seen == [1, 2, 3]
    page.evaluate("0")
    assert len([one for one in complaints if "mine" in one]) == 3
    complaints.clear()


def test_an_option_that_does_not_exist_is_refused(page, server):
    page.goto(server.url)
    told = page.evaluate(
        """async () => {
          const { follow } = await import("/oncekey-events.js");
          try { follow("/job", { onevent: 1 }); } catch (error) { return String(error); }
        }"""
    )
    assert told == "TypeError: follow() has no option onevent"


def test_a_job_instead_of_a_list_of_jobs_is_refused(page, server):
    """Its letters would be followed."""
    page.goto(server.url)
    told = page.evaluate(
        """async () => {
          const { follow } = await import("/oncekey-events.js");
          try { follow("/job", { jobs: "job-1" }).close(); } catch (error) { return String(error); }
        }"""
    )
    assert told == 'TypeError: jobs of follow() is a list, such as ["job-1"]'


TOKENS = """async ([good, retries]) => {
  const { follow } = await import("/oncekey-events.js");
  window.asked = [];
  window.said = [];
  window.seen = [];
  follow("/job", {
    pause: 1, longestPause: 5, retries,
    headers: async ({ renew }) => {
      await new Promise((done) => setTimeout(done, 1));
      asked.push(renew);
      if (good === "throws") throw new Error("no token");
      return { "X-Token": renew ? good : "old" };
    },
    onEvent: (event) => seen.push(event.offset),
    onStatus: (status, details) => said.push(status),
    until: (event) => event.seq === 2,
  });
}"""


def test_a_token_is_awaited_and_renewed_after_a_401(page, server, failing):
    refused, good = Answer(status=401), Answer((events(1, 1),), end="end")
    server.answers = [refused, good, refused, Answer((event(2),))]
    page.goto(server.url)
    page.evaluate(TOKENS, ["new", 100])
    page.wait_for_function("said.includes('closed')")
    assert page.evaluate("seen") == [1, 2]
    assert page.evaluate("asked") == [False, True, False, True]
    assert [one["X-Token"] for one in server.headers] == ["old", "new", "old", "new"]


def test_a_token_that_never_comes_does_not_end_the_tries(page, server):
    """Whoever hands out tokens may hang."""
    server.answers = [Answer((event(1),))]
    page.goto(server.url)
    page.evaluate(
        """async () => {
          const { follow } = await import("/oncekey-events.js");
          window.seen = [];
          window.asked = 0;
          follow("/job", {
            pause: 1, longestPause: 20, silence: 500,
            headers: () => ++asked < 3 ? new Promise(() => {}) : { "X-Token": "late" },
            onEvent: (event) => seen.push(event.offset), until: () => true,
          });
        }"""
    )
    page.wait_for_function("seen.length")
    assert page.evaluate("asked") == 3
    assert [one["X-Token"] for one in server.headers] == ["late"]


def test_a_token_that_is_refused_twice_is_final(page, server, failing):
    server.answers = [Answer(status=401)]
    page.goto(server.url)
    page.evaluate(TOKENS, ["new", 100])
    page.wait_for_function("said.includes('refused')")
    assert len(server.asked) == 2


@pytest.mark.parametrize("good", ["throws", "new"])
def test_it_gives_up_after_so_many_failures_in_a_row(page, server, failing, good):
    server.answers = [Answer(status=503)]
    page.goto(server.url)
    page.evaluate(TOKENS, [good, 3])
    page.wait_for_function("said.includes('failed')")
    assert page.evaluate("asked").count(False) == 4
    assert len(server.asked) == (0 if good == "throws" else 4)


def test_by_number_only_some_events_come(follow, server):
    """And the number may be zero."""
    page = follow(Answer((event(2) + event(5) + event(9),)), lastSeq=0, until=9)
    page.wait_for_function("said().includes('closed')")
    assert page.evaluate("seen()") == [2, 5, 9]
    assert server.asked == [{"last_seq": "0"}]


def of(page, job):
    """The offsets of the events of a job that were handed over."""
    return [one[1] for one in page.evaluate("log") if one[0] == "event" and one[4] == job]


@pytest.mark.row("E5", "E7")
def test_of_several_jobs_cut_off_at_any_byte_it_has_every_event_once(follow, server, failing):
    """Also if an id has no room for some of them, which then come from their beginning."""
    chance, last = random.Random(3), 12  # noqa: S311 - no secret
    jobs = ["a", "b", "c"]

    class Logs(list[Answer]):
        def pop(self, _):
            after = server.asked[-1].get("after", "")
            found = dict(part.split(".", 1) for part in after.split("~") if part)
            at = {job: int(found.get(tagged(job), "x.0").split(".")[1]) for job in jobs}
            gone = chance.choice(["", *jobs])
            at[gone] = 0
            body = b""
            while any(at[job] < last for job in jobs):
                job = chance.choice([job for job in jobs if at[job] < last])
                at[job] += 1
                named = {one: n for one, n in at.items() if n and (one != gone or one == job)}
                body += event_of(job, named, text="ä\n")
            cut = chance.randrange(min(3000, len(body) + 1)) if len(server.asked) < 12 else None
            return Answer((body[:cut],), end=chance.choice(["cut", "end"]))

    server.answers = Logs([Answer()] * 2)
    page = follow(jobs=jobs, until=last)
    page.wait_for_function("said().includes('closed')")
    assert len(server.asked) > 5
    assert {job: of(page, job) for job in jobs} == {job: list(range(1, last + 1)) for job in jobs}
    assert log(page, "resync") == []
    assert server.jobs == jobs


def test_of_several_jobs_each_goes_on_from_its_own_place(follow, server):
    after = places({"a": 2, "b": 7}, "a")
    answer = Answer((event_of("b", {"a": 2, "b": 8}) + event_of("a", {"a": 3, "b": 8}),))
    page = follow(answer, jobs=["a", "b"], after=after)
    page.wait_for_function("seen().length === 2")
    assert (of(page, "a"), of(page, "b")) == ([3], [8])
    assert server.asked == [{"after": after}]
    assert page.evaluate("following.last") == places({"a": 3, "b": 8}, "a")


def test_a_gap_in_one_of_several_jobs_is_asked_for_and_then_told_of_that_one(follow, server):
    both = event_of("a", {"a": 1}) + event_of("b", {"b": 1, "a": 1})
    gap = event_of("b", {"b": 3, "a": 1})
    page = follow(
        Answer((both + gap,)),
        Answer((gap,)),
        Answer((event_of("b", {"b": 1, "a": 1}) + event_of("b", {"b": 2, "a": 1}),)),
        jobs=["a", "b"],
    )
    page.wait_for_function("seen().length === 4")
    assert [one[:3] for one in page.evaluate("log") if one[0] == "resync"] == [
        ["resync", "gap", "b"]
    ]
    assert (of(page, "a"), of(page, "b")) == ([1], [1, 1, 2])
    known = places({"b": 1, "a": 1}, "b")
    assert server.asked == [{}, {"after": known}, {"after": places({"a": 1}, "a")}]


@pytest.mark.parametrize("begun", [True, False])
def test_a_resync_of_one_of_several_jobs_is_about_that_one(follow, server, begun):
    before = f"{tagged('b')}.{'ee.4.-' if begun else '0.0.-'}~{places({'a': 1}, 'a')}"
    after = places({"a": 1, "b": 9}, "a")
    told = f"{tagged('b')}.ee.{5 if begun else 1}.0c~{places({'a': 1}, 'a')}"
    page = follow(
        Answer((resync_of("b", "epoch", before),), end="end"),
        Answer((b'data: {"job_id": "b", "seq": 5}\nid: ' + told.encode() + b"\n\n",)),
        jobs=["a", "b"],
        after=after,
    )
    page.wait_for_function("seen().length === 1")
    assert [one for one in page.evaluate("log") if one[0] == "resync"] == [["resync", "epoch", "b"]]
    assert server.asked == [{"after": after}, {"after": before}]
    assert of(page, "b") == [5 if begun else 1]


def test_a_job_that_is_refused_is_told_and_the_others_end_it(follow, server):
    page = follow(
        Answer((refused("b", "forbidden") + event_of("a", {"a": 1}),)), jobs=["a", "b"], until=1
    )
    page.wait_for_function("said().includes('closed')")
    assert log(page, "refused", "event") == [["refused", "b"], ["event", 1]]


def test_a_topic_is_never_over(follow, server):
    page = follow(
        Answer((event_of("a", {"a": 1}), event_of("b", {"b": 1, "a": 1}))), jobs=["a/*"], until=1
    )
    page.wait_for_function("seen().length === 2")
    page.evaluate("following.close()")


def test_the_state_of_each_of_several_jobs_is_told_with_its_job(follow, server):
    def state_of(job, seq):
        return b'event: state\ndata: {"job_id": "%s", "state": {"seq": %d}}\n\n' % (job, seq)

    before = f"{tagged('b')}.ee.4.-"
    page = follow(
        Answer((state_of(b"a", 3) + state_of(b"b", 4) + resync_of("b", "trimmed", before),)),
        jobs=["a", "b"],
        state=True,
    )
    page.wait_for_function("log.filter(([what]) => what === 'state').length === 3")
    told = [one for one in page.evaluate("log") if one[0] in ("state", "resync")]
    assert told == [
        ["state", 3, "a"],
        ["state", 4, "b"],
        ["resync", "trimmed", "b"],
        ["state", 4, "b"],
    ]
