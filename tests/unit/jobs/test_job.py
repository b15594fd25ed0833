"""Where the key of a job comes from."""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from oncekey import ConfigurationError, InvalidKeyError
from oncekey.jobs import Job, by_entity, by_fields, by_payload, by_task_id
from oncekey.jobs.job import job_of


@dataclass
class Message:
    """A job as some queue has it."""

    task_id: str
    type: str
    payload: dict[str, object]


MESSAGE = Message("t-1", "note:archive", {"note_id": 7, "user": {"id": "u/1"}})
MAPPING = {"id": "t-1", "name": "note:archive", "data": MESSAGE.payload}
JOB = Job(id="t-1", name="note:archive", arguments=dict(MESSAGE.payload))
ONE_ARGUMENT = Job(id="t-1", name="note:archive", arguments={"message": MESSAGE.payload})


@pytest.mark.row("J5")
@pytest.mark.parametrize("job", [MESSAGE, MAPPING, JOB, ONE_ARGUMENT])
def test_every_strategy_reads_every_kind_of_job(job):
    assert by_task_id(job) == "t-1"
    assert by_fields("note_id", "user.id")(job) == "7:u%2F1"
    assert by_entity("note_id")(job) == "note%3Aarchive:7"
    assert len(by_payload(job)) == 64


@pytest.mark.row("J5")
def test_equal_payloads_are_one_job():
    same = Job(id="t-2", arguments={"user": {"id": "u/1"}, "note_id": 7})
    assert by_payload(JOB) == by_payload(same)
    assert by_payload(JOB) != by_payload(Job(arguments={"note_id": 8}))


def test_a_plain_mapping_is_its_own_payload():
    assert by_fields("order_id")({"order_id": 3}) == "3"
    assert job_of({"order_id": 3}).payload == {"order_id": 3}


def test_a_field_beside_the_payload_is_found_too():
    assert by_fields("order_id", "note")({"order_id": 7, "data": {"note": "n"}}) == "7:n"


def test_members_of_objects_are_found():
    assert by_fields("order.task_id")(Job(arguments={"order": MESSAGE})) == "t-1"


@pytest.mark.parametrize(
    ("key", "job"),
    [
        (by_task_id, Job()),
        (by_entity("a"), Job(arguments={"a": 1})),
        (by_fields("missing"), Job(arguments={"a": 1, "b": 2})),
        (by_fields("a.missing"), Job(arguments={"a": 1})),
        (by_fields("a"), Job(arguments={"a": None})),
        (by_fields("a"), Job(arguments={"a": ""})),
        (by_fields("a"), Job()),
    ],
)
def test_a_key_that_cannot_be_made_is_refused(key, job):
    with pytest.raises(InvalidKeyError):
        key(job)


def test_an_object_without_a_text_of_its_own_is_no_key():
    """Its address would be, which is another one in the next delivery."""
    job = Job(arguments={"order": object()})
    for key in (by_fields("order"), by_entity("order")):
        with pytest.raises(InvalidKeyError, match="'order' of the job has no text of its own"):
            key(replace(job, name="charge"))


@pytest.mark.parametrize("names", [(), ("",), (7,)])
def test_fields_need_names(names):
    with pytest.raises(ConfigurationError, match="by_fields"):
        by_fields(*names)


def test_bytes_can_be_keys():
    assert by_fields("a")(Job(arguments={"a": b"x"})) == "x"
