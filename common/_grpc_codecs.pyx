# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twins of what each call of gRPC passes: the fields of its headers, the commonest requests and their answers.

What is done in Python is the reference (``http2/decompression.py``, ``services/sending.py``, ``services/acknowledging.py``);
tests hold both equal. A twin does what is usual, and returns ``None`` for all else, which is then left to Python:
characters outside printable ASCII, fields that are rarely set, and whatever is an error.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "Python.h":
    object PyUnicode_FromStringAndSize(const char *text, Py_ssize_t size)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef struct Span:
    const uint8_t *at
    const uint8_t *end

cdef Span _NONE = Span(NULL, NULL)
cdef int _BYTES = 2  # how a field is written: a length, and so many bytes
cdef int _VARINT = 0
cdef uint64_t _MOST_SECONDS = 10000000000
cdef uint64_t _MOST_NANOS = 1000000000
cdef int _FIELD_BYTES = 32  # counted for each header beside its name and value
cdef int _FIRST_OWN = 62
cdef const char *_FIRST_LETTERS_OF_FAULTS = "ckptu:"  # connection, keep-alive, proxy-connection, te, upgrade
cdef frozenset _REQUEST_NAMES = frozenset((b":method", b":scheme", b":path", b":authority"))
cdef int _MOST_HEAD_BYTES = 12  # the key of a field, and a number
cdef int _MOST_NUMBERS_BYTES = 128  # of a delivery, with its digest's head and its instants


cdef inline int read_varint(Span *data, uint64_t *value) noexcept nogil:
    """Take a number; 0 when there is none."""
    cdef int shift = 0, is_last
    value[0] = 0
    while data.at < data.end and shift < 63:
        value[0] |= <uint64_t>(data.at[0] & 0x7F) << shift
        is_last = data.at[0] < 0x80
        data.at += 1
        if is_last:
            return 1
        shift += 7
    return 0


cdef inline int read_field(Span *data, int *number, int *kind, Span *content, uint64_t *value) noexcept nogil:
    """Take a field, a number or bytes; 0 when there is none."""
    cdef uint64_t key, size
    if not read_varint(data, &key):
        return 0
    number[0] = <int>(key >> 3)
    kind[0] = <int>(key & 7)
    if kind[0] == _VARINT:
        return read_varint(data, value)
    if kind[0] != _BYTES or not read_varint(data, &size) or size > <uint64_t>(data.end - data.at):
        return 0
    content.at = data.at
    data.at += size
    content.end = data.at
    return 1


cdef inline int is_plain(Span *text) noexcept nogil:
    """Tell whether a text is printable ASCII."""
    cdef const uint8_t *at = text.at
    while at < text.end:
        if at[0] < 0x20 or at[0] > 0x7E:
            return 0
        at += 1
    return 1


cdef inline int is_word(Span *text) noexcept nogil:
    """Tell whether a text is printable ASCII, and not blank."""
    cdef const uint8_t *at = text.at
    cdef int is_blank = 1
    while at < text.end:
        if at[0] < 0x20 or at[0] > 0x7E:
            return 0
        if at[0] != 0x20:
            is_blank = 0
        at += 1
    return not is_blank


cdef inline Py_ssize_t length(Span *text) noexcept nogil:
    return text.end - text.at


cdef inline str text_of(Span *text):
    return PyUnicode_FromStringAndSize(<const char *>text.at, text.end - text.at)


cdef int read_name(Span *resource, Span *name) noexcept nogil:
    """Take the name of a topic or group; 0 when it is no resource."""
    cdef int number, kind
    cdef uint64_t value
    cdef Span content
    name[0] = _NONE
    while resource.at < resource.end:
        if not read_field(resource, &number, &kind, &content, &value) or kind != _BYTES or number > 2:
            return 0
        if not is_plain(&content):
            return 0
        if number == 2:
            name[0] = content
    return 1


cdef int read_milliseconds(Span *stamp, int64_t *at_ms) noexcept nogil:
    """Take an instant since 1970; 0 when it is none."""
    cdef int number, kind
    cdef uint64_t value
    cdef Span content
    at_ms[0] = 0
    while stamp.at < stamp.end:
        if not read_field(stamp, &number, &kind, &content, &value) or kind != _VARINT:
            return 0
        if number == 1 and value < _MOST_SECONDS:
            at_ms[0] += <int64_t>value * 1000
        elif number == 2 and value < _MOST_NANOS:
            at_ms[0] += <int64_t>(value / 1_000_000)
        else:
            return 0
    return 1


def read_send(bytes data):
    """Return what a request to send one common message says (``services/sending.py``), ``None`` for all others.

    Returned are its topic, id, time of birth in ms, body and user properties; and what is stored of all its properties,
    as a text in the order of ``publish``, and by their names.
    """
    cdef Span whole, message, content, name, topic = _NONE, system = _NONE, body = _NONE
    cdef Span tag = _NONE, message_id = _NONE, born_host = _NONE, key, text
    cdef int number, kind
    cdef uint64_t value
    cdef int64_t born_at_ms = -1
    cdef dict users = {}, stored
    cdef list keys = []
    cdef str word, born_text, name_text, id_text, host_text, properties = ""
    whole.at = <const uint8_t *>PyBytes_AS_STRING(data)
    whole.end = whole.at + PyBytes_GET_SIZE(data)
    if not read_field(&whole, &number, &kind, &message, &value) or number != 1 or kind != _BYTES:
        return None
    if whole.at != whole.end:
        return None
    while message.at < message.end:
        if not read_field(&message, &number, &kind, &content, &value) or kind != _BYTES:
            return None
        if number == 1 and topic.at == NULL:
            topic = content
        elif number == 2:
            key = text = _NONE
            while content.at < content.end:
                if not read_field(&content, &number, &kind, &name, &value) or kind != _BYTES or not is_plain(&name):
                    return None
                if number == 1:
                    key = name
                elif number == 2:
                    text = name
                else:
                    return None
            users[text_of(&key) if key.at != NULL else ""] = text_of(&text) if text.at != NULL else ""
        elif number == 3 and system.at == NULL:
            system = content
        elif number == 4 and body.at == NULL:
            body = content
        else:
            return None
    if topic.at == NULL or not read_name(&topic, &name) or name.at == NULL or system.at == NULL or body.at == NULL:
        return None
    while system.at < system.end:
        if not read_field(&system, &number, &kind, &content, &value):
            return None
        if kind == _VARINT:
            # the encoding as it is, any kind but that of a transaction, the queue that the server chooses
            if not ((number == 5 and value <= 1) or (number == 6 and value != 4) or number == 13):
                return None
        elif number == 7:
            if not read_milliseconds(&content, &born_at_ms):
                return None
        elif not is_word(&content):
            return None
        elif number == 1:
            if memchr(content.at, c"|", length(&content)) != NULL:
                return None
            tag = content
        elif number == 2:
            keys.append(text_of(&content))
        elif number == 3:
            message_id = content
        elif number == 8:
            born_host = content
        else:
            return None
    if message_id.at == NULL or born_host.at == NULL or born_at_ms < 0:
        return None
    stored = {}
    if users:
        stored = {first: second for first, second in users.items() if first and second}
        properties = "".join([f"{first}\x01{second}\x02" for first, second in users.items()])
    if tag.at != NULL:
        word = stored["TAGS"] = text_of(&tag)
        properties = f"{properties}TAGS\x01{word}\x02"
    if keys:
        word = stored["KEYS"] = " ".join(keys)
        properties = f"{properties}KEYS\x01{word}\x02"
    name_text, id_text, host_text, born_text = text_of(&name), text_of(&message_id), text_of(&born_host), str(born_at_ms)
    stored["UNIQ_KEY"], stored["RECONSUME_TIME"], stored["PGROUP"] = id_text, "0", name_text
    stored["__BORNHOST"], stored["BORN_TIMESTAMP"] = host_text, born_text
    properties = (
        f"{properties}UNIQ_KEY\x01{id_text}\x02RECONSUME_TIME\x010\x02PGROUP\x01{name_text}\x02"
        f"__BORNHOST\x01{host_text}\x02BORN_TIMESTAMP\x01{born_text}\x02"
    )
    bytes_of_body = PyBytes_FromStringAndSize(<const char *>body.at, length(&body))
    return name_text, id_text, born_at_ms, bytes_of_body, users, properties, stored


def read_ack(bytes data):
    """Return the group, topic, message id and handle of a request about one message, ``None`` for all others."""
    cdef Span whole, content, entry = _NONE, group = _NONE, topic = _NONE, message_id = _NONE, handle = _NONE
    cdef int number, kind
    cdef uint64_t value
    whole.at = <const uint8_t *>PyBytes_AS_STRING(data)
    whole.end = whole.at + PyBytes_GET_SIZE(data)
    while whole.at < whole.end:
        if not read_field(&whole, &number, &kind, &content, &value) or kind != _BYTES:
            return None
        if number == 1 and group.at == NULL:
            if not read_name(&content, &group):
                return None
        elif number == 2 and topic.at == NULL:
            if not read_name(&content, &topic):
                return None
        elif number == 3 and entry.at == NULL:
            entry = content
        else:
            return None
    if group.at == NULL or topic.at == NULL or entry.at == NULL:
        return None
    while entry.at < entry.end:
        if not read_field(&entry, &number, &kind, &content, &value) or kind != _BYTES or not is_plain(&content):
            return None
        if number == 1:
            message_id = content
        elif number == 2:
            handle = content
        else:
            return None
    if message_id.at == NULL or handle.at == NULL:
        return None
    return text_of(&group), text_of(&topic), text_of(&message_id), text_of(&handle)


cdef inline int read_number(Span *block, int mask, Py_ssize_t *number) noexcept nogil:
    """Take a number that begins in the low bits of a byte; 0 when there is none that is usual."""
    number[0] = block.at[0] & mask
    block.at += 1
    if number[0] < mask:
        return 1
    if block.at >= block.end or block.at[0] >= 0x80:
        return 0
    number[0] += block.at[0]
    block.at += 1
    return 1


cdef bytes read_text(Span *block):
    """Take a text that is not packed; ``None`` when there is none."""
    cdef Py_ssize_t size
    if block.at >= block.end or block.at[0] >= 0x80 or not read_number(block, 0x7F, &size):
        return None
    if size > block.end - block.at:
        return None
    block.at += size
    return PyBytes_FromStringAndSize(<const char *>block.at - size, size)


cdef inline Py_ssize_t field_bytes(tuple field):
    return PyBytes_GET_SIZE(field[0]) + PyBytes_GET_SIZE(field[1]) + _FIELD_BYTES


cdef int is_faultless(bytes name, bytes value):
    """Tell that a header has no fault, as nearly none has; 0 when it is to be looked at."""
    cdef const uint8_t *text = <const uint8_t *>PyBytes_AS_STRING(name)
    cdef const uint8_t *content = <const uint8_t *>PyBytes_AS_STRING(value)
    cdef Py_ssize_t at, size = PyBytes_GET_SIZE(name)
    if size < 3 or memchr(_FIRST_LETTERS_OF_FAULTS, text[0], 6) != NULL:
        return name in _REQUEST_NAMES and is_one_line(content, PyBytes_GET_SIZE(value))
    for at in range(size):
        if not (c"a" <= text[at] <= c"z" or text[at] == c"-" or c"0" <= text[at] <= c"9"):
            return 0
    return is_one_line(content, PyBytes_GET_SIZE(value))


cdef inline int is_one_line(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(size):
        if text[at] == 0 or text[at] == 10 or text[at] == 13:
            return 0
    return 1


def decode_fields(bytes data, tuple fixed, list entries, Py_ssize_t size, Py_ssize_t limit, Py_ssize_t left):
    """Return the fields of a header block, the new size of the table, and what is left.

    The second is those that stand in the block as texts and might have a fault, which Python finds. ``entries`` are the table, which is ``size`` of at most ``limit`` bytes; ``left`` is what the fields may have.
    ``None``: the table is as it was (``http2/decompression.py``).
    """
    cdef Span block
    cdef Py_ssize_t index, known = len(entries), count = known, gone = 0
    cdef list fields = [], suspects = []
    cdef tuple field
    cdef bytes name, value
    cdef int is_kept
    block.at = <const uint8_t *>PyBytes_AS_STRING(data)
    block.end = block.at + PyBytes_GET_SIZE(data)
    while block.at < block.end:
        is_kept = 0
        if block.at[0] >= 0x80:
            if not read_number(&block, 0x7F, &index) or index == 0 or index >= _FIRST_OWN + count - gone:
                break
            field = fixed[index] if index < _FIRST_OWN else entries[count + _FIRST_OWN - 1 - index]
        else:
            is_kept = block.at[0] >= 0x40
            if not is_kept and block.at[0] >= 0x20:
                break
            if not read_number(&block, 0x3F if is_kept else 0x0F, &index) or index >= _FIRST_OWN + count - gone:
                break
            if index == 0:
                name = read_text(&block)
            else:
                name = (fixed[index] if index < _FIRST_OWN else entries[count + _FIRST_OWN - 1 - index])[0]
            value = None if name is None else read_text(&block)
            if value is None:
                break
            field = (name, value)
            if not is_faultless(name, value):
                suspects.append(field)
        left -= field_bytes(field)
        if left < 0:
            break
        fields.append(field)
        if is_kept:
            entries.append(field)
            count += 1
            size += field_bytes(field)
            while size > limit:
                size -= field_bytes(entries[gone])
                gone += 1
    else:
        del entries[:gone]
        return fields, suspects, size, left
    del entries[known:]
    return None


cdef inline char *put_varint(char *at, uint64_t number) noexcept nogil:
    while number >= 0x80:
        at[0] = <char>(number & 0x7F | 0x80)
        at += 1
        number >>= 7
    at[0] = <char>number
    return at + 1


cdef inline char *put_field(char *at, int number, const char *content, Py_ssize_t size) noexcept nogil:
    """Put a field of bytes; one that is empty is left out, as the library does."""
    if size == 0:
        return at
    at[0] = <char>(number << 3 | _BYTES)
    at = put_varint(at + 1, size)
    memcpy(at, content, size)
    return at + size


cdef inline Py_ssize_t most_field_bytes(Py_ssize_t size) noexcept nogil:
    return size + _MOST_HEAD_BYTES


cdef bytes answer_of(bytes ok, const char *entry, Py_ssize_t size):
    """Return an answer of a status and one entry."""
    cdef Py_ssize_t ok_size = PyBytes_GET_SIZE(ok)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, most_field_bytes(ok_size) + most_field_bytes(size))
    cdef char *start = PyBytes_AS_STRING(made)
    cdef char *at = put_field(put_field(start, 1, PyBytes_AS_STRING(ok), ok_size), 2, entry, size)
    return made[: at - start]


def encode_sent(bytes ok, str message_id, uint64_t queue_offset):
    """Return the answer for a message that is stored (``messages/brief.py``)."""
    cdef Py_ssize_t size, ok_size = PyBytes_GET_SIZE(ok)
    cdef const char *name = PyUnicode_AsUTF8AndSize(message_id, &size)
    cdef bytes entry = PyBytes_FromStringAndSize(NULL, most_field_bytes(ok_size) + 2 * most_field_bytes(size) + _MOST_HEAD_BYTES)
    cdef char *start = PyBytes_AS_STRING(entry)
    cdef char *at = put_field(start, 1, PyBytes_AS_STRING(ok), ok_size)
    at = put_field(put_field(at, 2, name, size), 3, name, size)
    if queue_offset:
        at[0] = 0x20
        at = put_varint(at + 1, queue_offset)
    return answer_of(ok, start, at - start)


def encode_acknowledged(bytes ok, str message_id, str handle):
    """Return the answer for a message that is acknowledged (``messages/brief.py``)."""
    cdef Py_ssize_t id_size, handle_size, ok_size = PyBytes_GET_SIZE(ok)
    cdef const char *name = PyUnicode_AsUTF8AndSize(message_id, &id_size)
    cdef const char *text = PyUnicode_AsUTF8AndSize(handle, &handle_size)
    cdef bytes entry = PyBytes_FromStringAndSize(
        NULL, most_field_bytes(ok_size) + most_field_bytes(id_size) + most_field_bytes(handle_size)
    )
    cdef char *start = PyBytes_AS_STRING(entry)
    cdef char *at = put_field(put_field(start, 1, name, id_size), 2, text, handle_size)
    at = put_field(at, 3, PyBytes_AS_STRING(ok), ok_size)
    return answer_of(ok, start, at - start)


cdef inline Py_ssize_t varint_bytes(uint64_t number) noexcept nogil:
    cdef Py_ssize_t size = 1
    while number >= 0x80:
        number >>= 7
        size += 1
    return size


cdef inline Py_ssize_t field_size(Py_ssize_t size) noexcept nogil:
    """Return what ``put_field`` puts below field 16."""
    return 1 + varint_bytes(size) + size if size else 0


cdef inline char *put_number(char *at, int number, uint64_t value) noexcept nogil:
    """Put a field that is a number below field 32."""
    if number >= 16:
        at[0] = <char>(number << 3 & 0x7F | 0x80)
        at[1] = <char>(number >> 4)
        return put_varint(at + 2, value)
    at[0] = <char>(number << 3)
    return put_varint(at + 1, value)


cdef inline char *put_stamp(char *at, int number, int64_t at_ms) noexcept nogil:
    """Put an instant since 1970."""
    cdef char content[24]
    cdef char *end = content
    if at_ms >= 1000:
        end = put_number(end, 1, at_ms / 1000)
    if at_ms % 1000:
        end = put_number(end, 2, at_ms % 1000 * 1000000)
    at[0] = <char>(number << 3 | _BYTES)
    at[1] = <char>(end - content)
    memcpy(at + 2, content, end - content)
    return at + 2 + (end - content)


cdef inline char *put_text(char *at, int number, str text) except NULL:
    cdef Py_ssize_t size
    cdef const char *content = PyUnicode_AsUTF8AndSize(text, &size)
    return put_field(at, number, content, size)


cdef inline Py_ssize_t text_bytes(str text) except -1:
    """Return what a text takes at most, as a field."""
    cdef Py_ssize_t size
    PyUnicode_AsUTF8AndSize(text, &size)
    return most_field_bytes(size)


cdef bytes user_fields(dict users):
    """Return the fields of a message's user properties."""
    cdef list parts = []
    cdef str name, text
    cdef bytes entry, part
    cdef char *start
    cdef char *at
    for name, text in users.items():
        entry = PyBytes_FromStringAndSize(NULL, text_bytes(name) + text_bytes(text))
        start = PyBytes_AS_STRING(entry)
        at = put_text(put_text(start, 1, name), 2, text)
        part = PyBytes_FromStringAndSize(NULL, most_field_bytes(at - start))
        parts.append(part[: put_field(PyBytes_AS_STRING(part), 2, start, at - start) - PyBytes_AS_STRING(part)])
    return b"".join(parts)


def encode_delivery(tuple texts, tuple numbers, dict users, tuple keys, bytes body):
    """Return the answer that hands out a common message (``messages/delivery.py``).

    ``texts`` are its topic, tag, id, digest, born host, store host and handle; ``numbers`` when it was born and stored,
    its queue, the offset there, and which delivery it is, none below 0. A tag, a born host or a handle may be empty.
    """
    cdef str topic = texts[0], tag = texts[1], message_id = texts[2], checksum = texts[3], born_host = texts[4]
    cdef str store_host = texts[5], handle = texts[6], key
    cdef Py_ssize_t most = _MOST_NUMBERS_BYTES, system_size, topic_size, size
    for key in texts:
        most += text_bytes(key)
    for key in keys:
        most += text_bytes(key)
    cdef bytes system = PyBytes_FromStringAndSize(NULL, most), resource
    cdef bytes properties = user_fields(users) if users else b""
    cdef char *start = PyBytes_AS_STRING(system)
    cdef char *at = put_text(start, 1, tag)
    for key in keys:
        at = put_text(at, 2, key)
    at = put_text(at, 3, message_id)
    at[0] = <char>(4 << 3 | _BYTES)  # the digest: MD5, in 32 characters
    at[1] = <char>(2 + 2 + PyUnicode_GET_LENGTH(checksum))
    at = put_text(put_number(at + 2, 1, 2), 2, checksum)
    at = put_number(put_number(at, 5, 1), 6, 1)  # as it is, and of no special kind
    at = put_text(put_stamp(at, 7, numbers[0]), 8, born_host)
    at = put_text(put_stamp(at, 9, numbers[1]), 10, store_host)
    at = put_text(at, 12, handle)
    if numbers[2]:
        at = put_number(at, 13, numbers[2])
    at = put_number(put_number(at, 14, numbers[3]), 16, numbers[4])
    system_size = at - start
    resource = PyBytes_FromStringAndSize(NULL, text_bytes(topic))
    topic_size = put_text(PyBytes_AS_STRING(resource), 2, topic) - PyBytes_AS_STRING(resource)
    size = field_size(topic_size) + PyBytes_GET_SIZE(properties) + field_size(system_size)
    size += field_size(PyBytes_GET_SIZE(body))
    cdef bytes made = PyBytes_FromStringAndSize(NULL, 1 + varint_bytes(size) + size)
    at = PyBytes_AS_STRING(made)
    at[0] = <char>(2 << 3 | _BYTES)
    at = put_varint(at + 1, size)
    at = put_field(at, 1, PyBytes_AS_STRING(resource), topic_size)
    memcpy(at, PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))
    at = put_field(at + PyBytes_GET_SIZE(properties), 3, start, system_size)
    at = put_field(at, 4, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    assert at - PyBytes_AS_STRING(made) == PyBytes_GET_SIZE(made)
    return made


def common_fields(list headers):
    """Return the headers of a common request by their names (``http2/headers.py``); ``None`` for one to be looked at.

    Common are three or four pseudo headers in front, none of them twice, and no length of the body.
    """
    cdef dict fields = {}
    cdef tuple field
    cdef bytes name
    cdef const char *text
    cdef Py_ssize_t size, count = 0, pseudo = 0
    for field in headers:
        name = field[0]
        text, size = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        if size and text[0] == c":":
            if pseudo != count:
                return None
            pseudo += 1
        elif size == 14 and memcmp(text, b"content-length", 14) == 0:
            return None
        elif size == 17 and memcmp(text, b"transfer-encoding", 17) == 0:
            return None
        fields[name] = field[1]
        count += 1
    if len(fields) != count or b":method" not in fields or b":scheme" not in fields or not fields.get(b":path"):
        return None
    return fields if pseudo == 3 or (pseudo == 4 and b":authority" in fields) else None


cdef inline char *put_frame_head(char *at, Py_ssize_t size, int kind, int flags, uint64_t stream_id) noexcept nogil:
    at[0], at[1], at[2] = <char>(size >> 16), <char>(size >> 8), <char>size
    at[3], at[4] = <char>kind, <char>flags
    at[5], at[6], at[7], at[8] = <char>(stream_id >> 24), <char>(stream_id >> 16), <char>(stream_id >> 8), <char>stream_id
    return at + 9


def cut_call_frames(bytes data, Py_ssize_t limit):
    """Return the frames of calls at the front of a read, and where they end (``http2/connection.py``).

    They are whole headers, with their priority cut off, and bodies without padding: stream, flags, payload. Flags are
    END_HEADERS and END_STREAM. Another frame ends them, as one does that is cut short or above the limit.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *at = start
    cdef const uint8_t *end = start + PyBytes_GET_SIZE(data)
    cdef const uint8_t *payload
    cdef Py_ssize_t size
    cdef int flags
    cdef uint32_t stream_id
    cdef list frames = []
    while end - at >= 9:
        size = at[0] << 16 | at[1] << 8 | at[2]
        if size > limit or size > end - at - 9:
            break
        flags, stream_id, payload = at[4], uint32_at(at + 5) & 0x7FFFFFFF, at + 9
        if at[3] == 1:
            if not flags & 4 or flags & ~0x25 or not stream_id & 1:
                break
            if flags & 0x20:
                if size < 5 or uint32_at(payload) & 0x7FFFFFFF == stream_id:
                    break
                payload += 5
        elif at[3] != 0 or flags & ~1:
            break
        at += 9 + size
        frames.append((stream_id, flags & 5, PyBytes_FromStringAndSize(<const char *>payload, at - payload)))
    return frames, at - start


cdef inline uint32_t uint32_at(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


def encode_answer_frames(uint64_t stream_id, bytes head, bytes body, bytes tail):
    """Return HEADERS, DATA and the HEADERS that end a stream (``http2/frames.py``)."""
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head), body_size = PyBytes_GET_SIZE(body)
    cdef Py_ssize_t tail_size = PyBytes_GET_SIZE(tail)
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, 27 + head_size + body_size + tail_size)
    cdef char *at = PyBytes_AS_STRING(frames)
    at = put_frame_head(at, head_size, 1, 4, stream_id)
    memcpy(at, PyBytes_AS_STRING(head), head_size)
    at = put_frame_head(at + head_size, body_size, 0, 0, stream_id)
    memcpy(at, PyBytes_AS_STRING(body), body_size)
    at = put_frame_head(at + body_size, tail_size, 1, 5, stream_id)
    memcpy(at, PyBytes_AS_STRING(tail), tail_size)
    return frames


def read_timeout(bytes text):
    """Return how many milliseconds a caller waits (``rpc/headers.py``), -1 for what is to be looked at."""
    cdef Py_ssize_t at, size = PyBytes_GET_SIZE(text) - 1
    cdef const char *digits = PyBytes_AS_STRING(text)
    cdef int64_t number = 0
    if size < 1 or size > 8:
        return -1
    for at in range(size):
        if not c"0" <= digits[at] <= c"9":
            return -1
        number = number * 10 + digits[at] - c"0"
    if digits[size] == c"m":
        return number
    if digits[size] == c"u":
        return (number + 999) // 1000
    if digits[size] == c"n":
        return (number + 999_999) // 1_000_000
    return -1
