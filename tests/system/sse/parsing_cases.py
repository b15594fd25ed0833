"""What the HTML standard says of the bytes of a stream, as a table of cases.

Each case has a name, the bytes, and what a page is told: messages as type, data and id, and a
number for a pause. They cover what the web-platform-tests try in the files that are named.
"""

LONG = "x" * 2048
NAMES = (
    b"data:\x00\ndata:  2\rData:1\ndata\x00:2\ndata:1\r\x00data:4\nda-ta:3\rdata_5\n"
    b"data:3\rdata:\r\n data:32\ndata:4\n\n"
)


def message(data, id="", type="message"):  # noqa: A002 - as the standard names them
    return {"type": type, "data": data, "id": id}


CASES = {
    "an empty line ends a message; lines of data are joined (event-data)": (
        b"data: one\ndata: two\n\ndata\n\ndata: end\n\n",
        [message("one\ntwo"), message(""), message("end")],
    ),
    "one byte order mark is skipped (format-bom)": (
        b"\xef\xbb\xbfdata:1\n\ndata:2\n\n",
        [message("1"), message("2")],
    ),
    "a second one is part of a field's name (format-bom-2)": (
        b"\xef\xbb\xbf\xef\xbb\xbfdata:1\n\ndata:2\n\n",
        [message("2")],
    ),
    "lines that start with a colon are comments, of any length (format-comments)": (
        f"data:1\r:\0\n:\r\ndata:2\n:{LONG}\rdata:3\n:data:no\r:{LONG}\ndata:4\n\n".encode(),
        [message("1\n2\n3\n4")],
    ),
    "what no empty line ends is dropped (format-data-before-final-empty-line)": (
        b"data:1\n\nid:x\ndata:2\n",
        [message("1")],
    ),
    "data without a colon, empty, and twice (format-field-data)": (
        b"data:\n\ndata\ndata\n\ndata:test\n\n",
        [message(""), message("\n"), message("test")],
    ),
    "an empty type is that of a message (format-field-event-empty)": (
        b"event:\ndata:1\n\nevent\ndata:2\n\n",
        [message("1"), message("2")],
    ),
    "a type is of one message, also if that has no data (format-field-event)": (
        b"event:test\ndata:1\n\ndata:2\n\nevent:test\n\ndata:3\n\n",
        [message("1", type="test"), message("2"), message("3")],
    ),
    "an id stays until there is another (format-field-id, -3)": (
        b"id: 1\ndata: 1\n\ndata: 2\n\nid: 2\ndata: 3\n\ndata: 4\n\n",
        [message("1", "1"), message("2", "1"), message("3", "2"), message("4", "2")],
    ),
    "an empty id is an id (format-field-id-2, -3)": (
        b"id: 1\ndata: 1\n\nid:\ndata: 2\n\nid: 3\ndata: 3\n\nid\ndata: 4\n\n",
        [message("1", "1"), message("2"), message("3", "3"), message("4")],
    ),
    "an id may come without data (format-field-id)": (
        b"id: 1\n\ndata: 1\n\n",
        [message("1", "1")],
    ),
    "an id with a null in it is ignored (format-field-id-null)": (
        b"id: 1\ndata: 1\n\nid: 2\x003\ndata: 2\n\n",
        [message("1", "1"), message("2", "1")],
    ),
    "an id is any text (format-field-id)": (
        "id: …\ndata: 1\n\n".encode(),
        [message("1", "…")],
    ),
    "names of fields are exact (format-field-parsing)": (
        NAMES,
        [message("\x00\n 2\n1\n3\n\n4")],
    ),
    "one blank after the colon is skipped, and no other (format-leading-space)": (
        b"data:\ttest\rdata: \ndata:test\n\ndata:  x\n\n",
        [message("\ttest\n\ntest"), message(" x")],
    ),
    "lines end in LF, CR or both (format-newlines)": (
        b"data:test\r\ndata\ndata:test\r\n\r\ndata:2\r\rdata:3\n\n",
        [message("test\n\ntest"), message("2"), message("3")],
    ),
    "a null is a character as others are (format-null-character)": (
        b"data:\x00\n\n\n\n",
        [message("\x00")],
    ),
    "other fields are ignored (format-field-unknown)": (
        b"data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisacommentyay\ndata:test\n\n",
        [message("test\n\ntest")],
    ),
    "bytes are UTF-8, and what is none is replaced (format-utf-8)": (
        b"data:ok\xe2\x80\xa6\n\ndata:\xff\n\n",
        [message("ok…"), message("�")],
    ),
    "lines end at no other separators (event-data)": (
        "data:a\u2028b\x0bc\x85d\n\n".encode(),
        [message("a\u2028b\x0bc\x85d")],
    ),
}

RETRIES = {
    "digits (format-field-retry)": (b"retry:3000\n", [3000]),
    "after a blank": (b"retry: 03000\n", [3000]),
    "nothing (format-field-retry-empty)": (b"retry:\nretry\n", []),
    "more than digits (format-field-retry-bogus)": (b"retry:1000x\nretry:-1\nretry:1.5\n", []),
}
"""Pauses, which an EventSource does not tell."""
