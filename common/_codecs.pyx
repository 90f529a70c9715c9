# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twins of what runs for each message of a batch, each that a filter looks at, or each that is indexed.

The functions in Python are the reference (``record.py``, ``store/index/property_keys.py``, ``entry_filters.py``);
tests hold both equal. A twin does what is usual, and returns ``None`` for all else, which is then left to Python:
unusual records, characters outside ASCII, and whatever is an error.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyUnicode_FromStringAndSize(const char *text, Py_ssize_t size)

import array
import zlib

cdef object _crc32 = zlib.crc32

cdef Py_ssize_t _HEAD_BYTES = 88
cdef Py_ssize_t _MOST_PROPERTY_BYTES = 32_767
cdef int64_t _MOST_LOG_OFFSET = 0x7FFFFFFF00000000
cdef int32_t _SMALL_BYTES = 0x10000
cdef uint32_t _MAGIC_V1 = 0xDAA320A7
cdef uint32_t _HOSTS_V6 = 0x30


cdef inline uint32_t read_int(const uint8_t *at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | <uint32_t>at[3]


cdef inline void write_int(uint8_t *at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 24)
    at[1] = <uint8_t>(value >> 16)
    at[2] = <uint8_t>(value >> 8)
    at[3] = <uint8_t>value


cdef inline void write_long(uint8_t *at, uint64_t value) noexcept nogil:
    write_int(at, <uint32_t>(value >> 32))
    write_int(at + 4, <uint32_t>value)


def encode_batch(list parts):
    """Return the body of a batch request (``record.encode_batch``), ``None`` when a part does not fit."""
    cdef Py_ssize_t total = 0, body_bytes, text_bytes
    cdef bytes body, text, result
    cdef int32_t flag
    cdef uint8_t *out
    for part in parts:
        body, text = part[1], part[2]
        body_bytes, text_bytes = PyBytes_GET_SIZE(body), PyBytes_GET_SIZE(text)
        total += 22 + body_bytes + text_bytes
        if text_bytes > _MOST_PROPERTY_BYTES or total > 0x7FFFFFFF:
            return None
    result = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t *>PyBytes_AS_STRING(result)
    for part in parts:
        try:
            flag = part[0]
        except OverflowError:
            return None
        body, text = part[1], part[2]
        body_bytes, text_bytes = PyBytes_GET_SIZE(body), PyBytes_GET_SIZE(text)
        write_int(out, <uint32_t>(22 + body_bytes + text_bytes))
        write_long(out + 4, 0)
        write_int(out + 12, <uint32_t>flag)
        write_int(out + 16, <uint32_t>body_bytes)
        out += 20
        memcpy(out, PyBytes_AS_STRING(body), body_bytes)
        out += body_bytes
        out[0] = <uint8_t>(text_bytes >> 8)
        out[1] = <uint8_t>text_bytes
        memcpy(out + 2, PyBytes_AS_STRING(text), text_bytes)
        out += 2 + text_bytes
    return result


def split_batch(bytes body, Py_ssize_t most):
    """Return the messages of a batch body, ``None`` when there is an error in it (``record.split_batch``)."""
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(body)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(body), position = 0, count = 0, size_at, next_at
    cdef int32_t length
    cdef list parts = []
    while position < end:
        if end - position < 22 or count == most:
            return None
        length = <int32_t>read_int(data + position + 16)
        if length < 0 or length > end - position - 22:
            return None
        size_at = position + 20 + length
        next_at = size_at + 2 + ((<Py_ssize_t>data[size_at] << 8) | data[size_at + 1])
        if next_at > end or next_at - size_at - 2 > _MOST_PROPERTY_BYTES:
            return None
        parts.append((
            <int32_t>read_int(data + position + 12),
            PyBytes_FromStringAndSize(<const char *>data + position + 20, length),
            PyBytes_FromStringAndSize(<const char *>data + size_at + 2, next_at - size_at - 2),
        ))
        position = next_at
        count += 1
    return parts


def encode_record(new, bytes topic, int64_t queue_offset, int64_t log_offset, int64_t stored_at_ms, bytes store_host):
    """Return the bytes of a record (``record.encode_record``), ``None`` when a part does not fit or is not usual.

    ``topic`` has its length, of one byte, before it.
    """
    cdef bytes body, text, born_host, result
    cdef int32_t queue_id, flag, sys_flag, reconsume_times
    cdef int64_t born_at_ms, prepared_transaction_offset
    cdef Py_ssize_t body_bytes, topic_bytes = PyBytes_GET_SIZE(topic), text_bytes, size
    cdef uint8_t *out
    try:
        body, text, born_host = new.body, new.property_text, new.born_host
        queue_id, flag, sys_flag = new.queue_id, new.flag, new.sys_flag
        reconsume_times, born_at_ms = new.reconsume_times, new.born_at_ms
        prepared_transaction_offset = new.prepared_transaction_offset
    except (OverflowError, TypeError):
        return None
    body_bytes, text_bytes = PyBytes_GET_SIZE(body), PyBytes_GET_SIZE(text)
    size = _HEAD_BYTES + body_bytes + topic_bytes + 2 + text_bytes
    if text_bytes > _MOST_PROPERTY_BYTES or size > 0x7FFFFFFF:
        return None
    if PyBytes_GET_SIZE(born_host) != 8 or PyBytes_GET_SIZE(store_host) != 8:
        return None
    result = PyBytes_FromStringAndSize(NULL, size)
    out = <uint8_t *>PyBytes_AS_STRING(result)
    write_int(out, <uint32_t>size)
    write_int(out + 4, _MAGIC_V1)
    write_int(out + 8, <uint32_t>_crc32(body) & 0x7FFFFFFF)
    write_int(out + 12, <uint32_t>queue_id)
    write_int(out + 16, <uint32_t>flag)
    write_long(out + 20, <uint64_t>queue_offset)
    write_long(out + 28, <uint64_t>log_offset)
    write_int(out + 36, <uint32_t>sys_flag & ~_HOSTS_V6)
    write_long(out + 40, <uint64_t>born_at_ms)
    memcpy(out + 48, PyBytes_AS_STRING(born_host), 8)
    write_long(out + 56, <uint64_t>stored_at_ms)
    memcpy(out + 64, PyBytes_AS_STRING(store_host), 8)
    write_int(out + 72, <uint32_t>reconsume_times)
    write_long(out + 76, <uint64_t>prepared_transaction_offset)
    write_int(out + 84, <uint32_t>body_bytes)
    out += _HEAD_BYTES
    memcpy(out, PyBytes_AS_STRING(body), body_bytes)
    out += body_bytes
    memcpy(out, PyBytes_AS_STRING(topic), topic_bytes)
    out += topic_bytes
    out[0] = <uint8_t>(text_bytes >> 8)
    out[1] = <uint8_t>text_bytes
    memcpy(out + 2, PyBytes_AS_STRING(text), text_bytes)
    return result


def encode_records(bytes begin, list parts, bytes topic, int64_t queue_offset, int64_t log_offset):
    """Return the records of the parts and their sizes (``record.encode_records``), ``None`` if one does not fit.

    ``begin`` is what stands before the length of the body in the first record; ``topic`` has its length before it.
    """
    cdef Py_ssize_t begin_bytes = PyBytes_GET_SIZE(begin), topic_bytes = PyBytes_GET_SIZE(topic), total = 0, size
    cdef Py_ssize_t body_bytes, text_bytes
    cdef bytes body, text, result
    cdef int32_t flag
    cdef uint8_t *out
    cdef list sizes = []
    for _, body, text in parts:
        size = begin_bytes + PyBytes_GET_SIZE(body) + topic_bytes + PyBytes_GET_SIZE(text) + 6
        sizes.append(size)
        total += size
        if PyBytes_GET_SIZE(text) > _MOST_PROPERTY_BYTES or total > 0x7FFFFFFF:
            return None
    result = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t *>PyBytes_AS_STRING(result)
    for flag, body, text in parts:
        body_bytes, text_bytes = PyBytes_GET_SIZE(body), PyBytes_GET_SIZE(text)
        size = begin_bytes + body_bytes + topic_bytes + text_bytes + 6
        memcpy(out, PyBytes_AS_STRING(begin), begin_bytes)
        write_int(out, <uint32_t>size)
        write_int(out + 8, <uint32_t>_crc32(body) & 0x7FFFFFFF)
        write_int(out + 16, <uint32_t>flag)
        write_long(out + 20, <uint64_t>queue_offset)
        write_long(out + 28, <uint64_t>log_offset)
        out += begin_bytes
        write_int(out, <uint32_t>body_bytes)
        memcpy(out + 4, PyBytes_AS_STRING(body), body_bytes)
        out += 4 + body_bytes
        memcpy(out, PyBytes_AS_STRING(topic), topic_bytes)
        out += topic_bytes
        out[0] = <uint8_t>(text_bytes >> 8)
        out[1] = <uint8_t>text_bytes
        memcpy(out + 2, PyBytes_AS_STRING(text), text_bytes)
        out += 2 + text_bytes
        queue_offset += 1
        log_offset += size
    return result, sizes


def format_offset_ids(str host_text, log_offsets):
    """Return the ids of records, with commas between them (``ids.format_offset_ids``)."""
    cdef Py_ssize_t host_size, count = len(log_offsets)
    cdef const char *host = PyUnicode_AsUTF8AndSize(host_text, &host_size)
    cdef uint64_t value
    cdef int digit
    if count == 0:
        return ""
    cdef bytes result = PyBytes_FromStringAndSize(NULL, count * (host_size + 17) - 1)
    cdef char *out = PyBytes_AS_STRING(result)
    cdef char *end = out + PyBytes_GET_SIZE(result)
    for value in log_offsets:
        memcpy(out, host, host_size)
        out += host_size
        for digit in range(16):
            out[digit] = b"0123456789ABCDEF"[(value >> (60 - 4 * digit)) & 15]
        out += 16
        if out < end:
            out[0] = 44  # a comma
            out += 1
    return PyUnicode_FromStringAndSize(PyBytes_AS_STRING(result), PyBytes_GET_SIZE(result))


def parse_properties(str text):
    """Return name and value of every usable chunk (``properties.parse_properties``)."""
    cdef Py_ssize_t size
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *chunk_end
    cdef const uint8_t *mark
    cdef dict properties = {}
    if not text.isascii():
        return None
    at = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
    end = at + size
    while at < end:
        chunk_end = <const uint8_t *>memchr(at, 2, end - at)
        if chunk_end == NULL:
            chunk_end = end
        mark = <const uint8_t *>memchr(at, 1, chunk_end - at)
        if mark != NULL and mark > at and mark + 1 < chunk_end:
            name = PyUnicode_FromStringAndSize(<const char *>at, mark - at)
            properties[name] = PyUnicode_FromStringAndSize(<const char *>mark + 1, chunk_end - mark - 1)
        at = chunk_end + 1
    return properties


cdef inline const uint8_t *read_word(const uint8_t *at, const uint8_t *end, int64_t *number) noexcept nogil:
    """Take a number of at most 18 digits and the space behind it; return where the next word is, NULL if it is none."""
    cdef const uint8_t *start = at
    number[0] = 0
    while at < end and c"0" <= at[0] <= c"9":
        number[0] = number[0] * 10 + at[0] - c"0"
        at += 1
        if at - start > 18:
            return NULL
    if at == start or (at < end and at[0] != c" "):
        return NULL
    return at + 1


def parse_handle(str text):
    """Return the words of a handle as brokers write it (``pop_texts.parse_handle``), ``None`` for all others."""
    cdef Py_ssize_t size, word
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *name
    cdef int64_t[4] numbers
    cdef int64_t queue_id, queue_offset
    if not text.isascii():
        return None
    at = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
    end = at + size
    for word in range(4):
        at = read_word(at, end, &numbers[word])
        if at == NULL or at >= end:
            return None
    if end - at < 3 or not c"0" <= at[0] <= c"2" or at[1] != c" ":
        return None
    retry = text[at - (end - size)]
    name = at + 2
    at = <const uint8_t *>memchr(name, c" ", end - name)
    if at == NULL:
        return None
    broker_name = PyUnicode_FromStringAndSize(<const char *>name, at - name)
    at = read_word(at + 1, end, &queue_id)
    if at == NULL or at >= end:
        return None
    at = read_word(at, end, &queue_offset)
    if at == NULL:
        return None
    return numbers[0], numbers[1], numbers[2], numbers[3], retry, broker_name, queue_id, queue_offset


def find_tagged(bytes entries, array.array codes, Py_ssize_t most):
    """Return bounds, count and size of records, and entries seen (``TagCodeFilter.find_runs``).

    Without ``codes`` all are wanted. Returns ``None`` for another order, or if one that was seen is not small.
    """
    cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(entries)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(entries) // 20, place, count = 0, code_count = 0, each
    cdef const int *wanted = NULL
    cdef int64_t log_offset, run_end = 0, total = 0
    cdef int32_t size, code
    cdef list bounds = []
    cdef bint wants_all = codes is None
    if not wants_all:
        code_count, wanted = len(codes), codes.data.as_ints
    for place in range(end):
        size = <int32_t>read_int(data + 8)
        if size < 0 or size >= _SMALL_BYTES:
            return None
        code = <int32_t>read_int(data + 16)
        for each in range(code_count):
            if wanted[each] == code:
                break
        else:
            if not wants_all:
                data += 20
                continue
        log_offset = <int64_t>((<uint64_t>read_int(data) << 32) | read_int(data + 4))
        if log_offset < run_end or log_offset > _MOST_LOG_OFFSET:
            return None
        if count == 0:
            bounds.append(log_offset)
        elif log_offset != run_end:
            bounds.append(run_end)
            bounds.append(log_offset)
        run_end = log_offset + size
        total += size
        count += 1
        if count >= most:
            end = place + 1
            break
        data += 20
    if count:
        bounds.append(run_end)
    return bounds, count, total, end


def join_runs(log, int64_t base, list bounds, Py_ssize_t size):
    """Return the bytes of runs, ``size`` together, of a file that begins at ``base``; ``None`` if they are not in it."""
    cdef Py_buffer buffer
    cdef Py_ssize_t place, count = len(bounds), length, left = size
    cdef int64_t start, stop
    cdef bytes result = PyBytes_FromStringAndSize(NULL, size)
    cdef char *out = PyBytes_AS_STRING(result)
    PyObject_GetBuffer(log, &buffer, PyBUF_SIMPLE)
    try:
        for place in range(0, count - 1, 2):
            start, stop = bounds[place], bounds[place + 1]
            length = stop - start
            if start < base or stop - base > buffer.len or length < 0 or length > left:
                return None
            memcpy(out, <const char *>buffer.buf + (start - base), length)
            out += length
            left -= length
    finally:
        PyBuffer_Release(&buffer)
    return result if left == 0 else None


def find_known(bytes entries, log, int64_t base, tuple known, Py_ssize_t most):
    """Return bounds, count and size of records, and entries seen, by verdicts on their values (``SqlFilter.find_runs``).

    ``known`` are the marks of the values, and the verdicts by values. Returns the place of the first entry about whose
    values there is no verdict; ``None`` for records in another order, in another file, not small or of another kind
    than most.
    """
    cdef const uint8_t *entry = <const uint8_t *>PyBytes_AS_STRING(entries)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(entries) // 20, place, count = 0, start, stop, text_at
    cdef int64_t run_end = 0, log_offset = 0, total = 0
    cdef const uint8_t *data
    cdef Py_buffer buffer
    cdef tuple marks = known[0]
    cdef dict verdicts = known[1]
    cdef list bounds = []
    PyObject_GetBuffer(log, &buffer, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>buffer.buf
        for place in range(end):
            log_offset = <int64_t>((<uint64_t>read_int(entry) << 32) | read_int(entry + 4))
            start = log_offset - base
            stop = start + <int32_t>read_int(entry + 8)
            if log_offset < base or log_offset < run_end or stop < start or stop > buffer.len:
                return None
            if stop - start >= _SMALL_BYTES:
                return None
            text_at = find_text(data, start, stop)
            if text_at < 0:
                return None
            verdict = verdicts.get(tuple([find_value(data + text_at, stop - text_at, mark) for mark in marks]))
            if verdict is None:
                return place
            entry += 20
            if verdict is False:
                continue
            if count == 0:
                bounds.append(log_offset)
            elif log_offset != run_end:
                bounds.append(run_end)
                bounds.append(log_offset)
            run_end = base + stop
            total += stop - start
            count += 1
            if count >= most:
                end = place + 1
                break
    finally:
        PyBuffer_Release(&buffer)
    if count:
        bounds.append(run_end)
    return bounds, count, total, end


def find_values(log, Py_ssize_t start, Py_ssize_t end, tuple marks):
    """Return the values behind the marks in the properties of a record (``record.find_values``).

    ``None`` for a record of another kind than most, or a damaged one.
    """
    cdef Py_buffer buffer
    cdef const uint8_t *data
    cdef Py_ssize_t text_at
    PyObject_GetBuffer(log, &buffer, PyBUF_SIMPLE)
    try:
        if start < 0 or end > buffer.len:
            return None
        data = <const uint8_t *>buffer.buf
        text_at = find_text(data, start, end)
        if text_at < 0:
            return None
        return tuple([find_value(data + text_at, end - text_at, mark) for mark in marks])
    finally:
        PyBuffer_Release(&buffer)


cdef Py_ssize_t find_text(const uint8_t *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Return where the text of the properties begins, -1 if the record is not a usual one."""
    cdef Py_ssize_t at = start + _HEAD_BYTES
    cdef int32_t body_bytes
    if end - start < _HEAD_BYTES + 3 or read_int(data + start + 4) != _MAGIC_V1:
        return -1
    if read_int(data + start + 36) & _HOSTS_V6:
        return -1
    body_bytes = <int32_t>read_int(data + start + 84)
    if body_bytes < 0 or body_bytes > end - at - 3:
        return -1
    at += body_bytes
    if data[at] > 127 or end - at < data[at] + 3:
        return -1
    at += 1 + data[at]
    return at + 2 if ((<Py_ssize_t>data[at] << 8) | data[at + 1]) == end - at - 2 else -1


cdef object find_value(const uint8_t *text, Py_ssize_t size, bytes mark):
    """Return what ``properties.find_value`` does."""
    cdef const uint8_t *wanted = <const uint8_t *>PyBytes_AS_STRING(mark)
    cdef Py_ssize_t wanted_bytes = PyBytes_GET_SIZE(mark), at = size - wanted_bytes
    cdef bytes value
    while at >= 0:
        if text[at] == wanted[0] and memcmp(text + at, wanted, wanted_bytes) == 0:
            value = value_at(text, size, at + wanted_bytes)
            if value:
                return value
            at -= wanted_bytes  # an empty one counts for none, so an earlier one may
        else:
            at -= 1
    if size >= wanted_bytes - 1 and memcmp(text, wanted + 1, wanted_bytes - 1) == 0:
        return value_at(text, size, wanted_bytes - 1) or None
    return None


cdef bytes value_at(const uint8_t *text, Py_ssize_t size, Py_ssize_t at):
    cdef const uint8_t *found = <const uint8_t *>memchr(text + at, 2, size - at) if at < size else NULL
    cdef Py_ssize_t end = size if found == NULL else found - text
    return PyBytes_FromStringAndSize(<const char *>text + at, end - at)


def entries_of(object run, object kind):
    """Return what stands in one queue of records that follow each other there (``EntryRules.entries_of``).

    The code of each is noted in it. ``None`` unless all are of a ``kind``, unparsed, and their tags are of ASCII.
    """
    cdef Py_ssize_t count = len(run), at, size
    cdef bytes result = PyBytes_FromStringAndSize(NULL, ENTRY_BYTES * count), tag, text
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(result)
    cdef const uint8_t *letters
    cdef uint32_t code
    for record in run:
        if type(record) is not kind or record.parsed is not None:
            return None
        text = record.property_text
        tag = find_value(<const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), _TAGS_MARK)
        code = 0
        if tag is not None:
            letters = <const uint8_t *>PyBytes_AS_STRING(tag)
            size = PyBytes_GET_SIZE(tag)
            for at in range(size):
                if letters[at] > 127:
                    return None
                code = 31 * code + letters[at]
        record.tags_code = <int32_t>code
        write_long(out, <uint64_t><int64_t>record.log_offset)
        write_int(out + 8, <uint32_t><int32_t>record.size)
        write_long(out + 12, <uint64_t><int64_t><int32_t>code)
        out += ENTRY_BYTES
    return result


cdef enum:
    ENTRY_BYTES = 20


cdef bytes _TAGS_MARK = b"\x02TAGS\x01"


cdef struct Span:
    const uint8_t *at
    Py_ssize_t size


def key_entries(texts, topics, dict prefixes):
    """Return the index entries of records, given the texts of their properties (``PropertyKeys.entries``).

    ``prefixes`` has the hashes of what stands before a key and before a tag, by topic. Returned are two arrays: the
    number of its record and the hash, for each entry.
    """
    cdef array.array rows = array.array("q"), hashes = array.array("q")
    cdef Span unique_key, keys, tags
    cdef Py_ssize_t row = 0, start, at
    cdef uint32_t key_prefix, tag_prefix
    cdef bytes text
    for text, topic in zip(texts, topics):
        if not text.isascii():
            return None
        key_prefix, tag_prefix = prefixes[topic]
        unique_key.size = keys.size = tags.size = 0
        find_keys(<const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), &unique_key, &keys, &tags)
        if unique_key.size:
            add_entry(rows, hashes, row, key_prefix, unique_key.at, unique_key.size)
        start = 0
        for at in range(keys.size + 1):
            if at == keys.size or keys.at[at] == 32:
                if at > start:
                    add_entry(rows, hashes, row, key_prefix, keys.at + start, at - start)
                start = at + 1
        if tags.size:
            add_entry(rows, hashes, row, tag_prefix, tags.at, tags.size)
        row += 1
    return rows, hashes


cdef void find_keys(const uint8_t *text, Py_ssize_t size, Span *unique_key, Span *keys, Span *tags) noexcept nogil:
    """Find the last values that are not empty of the three properties that the index knows."""
    cdef const uint8_t *end = text + size
    cdef const uint8_t *chunk_end
    cdef const uint8_t *mark
    cdef Span *found
    while text < end:
        chunk_end = <const uint8_t *>memchr(text, 2, end - text)
        if chunk_end == NULL:
            chunk_end = end
        mark = <const uint8_t *>memchr(text, 1, chunk_end - text)
        if mark != NULL and mark + 1 < chunk_end:
            found = NULL
            if mark - text == 4:
                if memcmp(text, b"KEYS", 4) == 0:
                    found = keys
                elif memcmp(text, b"TAGS", 4) == 0:
                    found = tags
            elif mark - text == 8 and memcmp(text, b"UNIQ_KEY", 8) == 0:
                found = unique_key
            if found != NULL:
                found.at = mark + 1
                found.size = chunk_end - mark - 1
        text = chunk_end + 1


cdef int add_entry(array.array rows, array.array hashes, Py_ssize_t row, uint32_t value, const uint8_t *key, Py_ssize_t size) except -1:
    """Add an entry: Java's hash of the prefix, of which ``value`` is the hash, and the key behind it."""
    cdef Py_ssize_t at, count = len(rows)
    cdef int64_t found
    for at in range(size):
        value = value * 31 + key[at]
    found = <int32_t>value
    array.resize_smart(rows, count + 1)
    array.resize_smart(hashes, count + 1)
    rows.data.as_longlongs[count] = row
    hashes.data.as_longlongs[count] = 0 if value == <uint32_t>0x80000000 else (found if found >= 0 else -found)
    return 0
