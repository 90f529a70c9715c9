# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twins of what each call of gRPC passes: the fields of its headers, and the commonest requests.

What is done in Python is the reference (``http2/decompression.py``, ``services/sending.py``, ``services/acknowledging.py``);
tests hold both equal. A twin does what is usual, and returns ``None`` for all else, which is then left to Python:
characters outside printable ASCII, fields that are rarely set, and whatever is an error.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from "Python.h":
    object PyUnicode_FromStringAndSize(const char *text, Py_ssize_t size)

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

    Returned are its topic, id, tag, keys, born host, time of birth in ms, user properties and body.
    """
    cdef Span whole, message, content, name, topic = _NONE, system = _NONE, body = _NONE
    cdef Span tag = _NONE, message_id = _NONE, born_host = _NONE, key, text
    cdef int number, kind
    cdef uint64_t value
    cdef int64_t born_at_ms = -1
    cdef dict properties = {}
    cdef list keys = []
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
            properties[text_of(&key) if key.at != NULL else ""] = text_of(&text) if text.at != NULL else ""
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
    return (
        text_of(&name),
        text_of(&message_id),
        text_of(&tag) if tag.at != NULL else "",
        keys,
        text_of(&born_host),
        born_at_ms,
        properties,
        PyBytes_FromStringAndSize(<const char *>body.at, length(&body)),
    )


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


def decode_fields(bytes data, tuple fixed, list entries, Py_ssize_t size, Py_ssize_t limit, Py_ssize_t left):
    """Return the fields of a header block, those that stand in it as texts, the new size of the table, what is left.

    ``entries`` are the table, which is ``size`` of at most ``limit`` bytes; ``left`` is what the fields may have.
    ``None``: the table is as it was (``http2/decompression.py``).
    """
    cdef Span block
    cdef Py_ssize_t index, known = len(entries), count = known, gone = 0
    cdef list fields = [], new = []
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
            new.append(field)
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
        return fields, new, size, left
    del entries[known:]
    return None
