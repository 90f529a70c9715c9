# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twins of what reads and writes the fields of remoting headers for each request.

The functions in Python are the reference (``signing.py``, ``broker/send``); tests hold both equal. A twin does what is
usual, and leaves all else to Python.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyUnicode_FromStringAndSize(const char *text, Py_ssize_t size)

cdef enum:
    MOST_SIGNED_FIELDS = 48
    MOST_SHORT_VALUES = 1024
    LAST_VERSION_WITHOUT_MARKS = 399
    SHA1_WORDS = 16  # its state has 96 bytes
    SHA1_BYTES = 20
    BLOCK_BYTES = 64
    SIGNATURE_BYTES = 28


ctypedef int (*Sha1Init)(void *state) noexcept nogil
ctypedef int (*Sha1Update)(void *state, const void *data, size_t size) noexcept nogil
ctypedef int (*Sha1Final)(uint8_t *digest, void *state) noexcept nogil

cdef const char *_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef class Sha1Halves:
    """Both halves of HMAC, with the functions of libcrypto that ``hashlib`` has loaded (``signing.HashlibHalves``)."""

    cdef uint64_t inner[SHA1_WORDS]
    cdef uint64_t outer[SHA1_WORDS]
    cdef Sha1Update update
    cdef Sha1Final finish

    def __init__(self, bytes block, size_t init, size_t update, size_t finish):
        if PyBytes_GET_SIZE(block) != BLOCK_BYTES:
            raise ValueError(f"a block has {BLOCK_BYTES} bytes, not {len(block)}")
        self.update = <Sha1Update>update
        self.finish = <Sha1Final>finish
        self.begin(self.inner, <Sha1Init>init, block, 0x36)
        self.begin(self.outer, <Sha1Init>init, block, 0x5C)

    cdef void begin(self, uint64_t *state, Sha1Init init, bytes block, uint8_t mask):
        cdef uint8_t pad[BLOCK_BYTES]
        cdef Py_ssize_t at
        for at in range(BLOCK_BYTES):
            pad[at] = <uint8_t>block[at] ^ mask
        init(state)
        self.update(state, pad, BLOCK_BYTES)

    def fits(self, bytes signature, bytes content):
        """Tell whether a signature is that of a content (``SigningKey.fits``)."""
        if PyBytes_GET_SIZE(signature) != SIGNATURE_BYTES:
            return False
        return self.are_those_of(<const uint8_t *>PyBytes_AS_STRING(signature), NULL, 0, content)

    cdef bint are_those_of(self, const uint8_t *given, const uint8_t *values, Py_ssize_t size, bytes body):
        """Tell whether a signature, of ``SIGNATURE_BYTES``, is that of values and a body."""
        cdef uint64_t state[SHA1_WORDS]
        cdef uint8_t digest[SHA1_BYTES + 1]
        cdef uint32_t three
        cdef Py_ssize_t at
        cdef uint8_t differs = 0
        memcpy(state, self.inner, sizeof(state))
        if size:
            self.update(state, values, size)
        self.update(state, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        self.finish(digest, state)
        memcpy(state, self.outer, sizeof(state))
        self.update(state, digest, SHA1_BYTES)
        self.finish(digest, state)
        digest[SHA1_BYTES] = 0
        for at in range(SIGNATURE_BYTES // 4):  # in base64, three bytes are four letters
            three = (<uint32_t>digest[3 * at] << 16) | (<uint32_t>digest[3 * at + 1] << 8) | digest[3 * at + 2]
            differs |= given[4 * at] ^ <uint8_t>_LETTERS[three >> 18]
            differs |= given[4 * at + 1] ^ <uint8_t>_LETTERS[(three >> 12) & 63]
            differs |= given[4 * at + 2] ^ <uint8_t>_LETTERS[(three >> 6) & 63]
            if at < SIGNATURE_BYTES // 4 - 1:
                differs |= given[4 * at + 3] ^ <uint8_t>_LETTERS[three & 63]
        differs |= given[SIGNATURE_BYTES - 1] ^ <uint8_t>c"="
        return differs == 0


cdef struct Field:
    const uint8_t *name
    Py_ssize_t name_size
    const uint8_t *value
    Py_ssize_t raw_size
    Py_ssize_t size
    Py_ssize_t start


cdef struct SignedFields:
    Field fields[MOST_SIGNED_FIELDS]
    Field *order[MOST_SIGNED_FIELDS]  # by their names
    Py_ssize_t count
    Field *user
    Field *signature
    Py_ssize_t total  # bytes of all values that are signed
    bint is_plain


def scan_signed(object text, bytes body, int version, tuple names):
    """Return who signed, with what, what for, and the values of some fields (``signing.scan_signed``).

    ``None`` unless all fields are texts with plain names, each once, without blanks between them, and one byte for each
    that is escaped.
    """
    cdef Py_buffer view
    cdef SignedFields found
    cdef bytes content, given
    cdef uint8_t *out
    PyObject_GetBuffer(text, &view, PyBUF_SIMPLE)
    try:
        if not read_signed(&found, <const uint8_t *>view.buf, view.len, version):
            return None
        content = PyBytes_FromStringAndSize(NULL, found.total + PyBytes_GET_SIZE(body))
        out = <uint8_t *>PyBytes_AS_STRING(content)
        write_values(&found, out)
        memcpy(out + found.total, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        given = PyBytes_FromStringAndSize(NULL, found.signature.size)
        write_value(found.signature, <uint8_t *>PyBytes_AS_STRING(given))
        if not found.is_plain:
            PyUnicode_FromStringAndSize(<const char *>view.buf, view.len)
        return text_of(found.user, out), given, content, texts_of(&found, out, names)
    except UnicodeDecodeError:
        return None
    finally:
        PyBuffer_Release(&view)


cdef class ShortCheck:
    """Lets requests through whose like was granted before (``signing.ShortCheck``), by ``Sha1Halves``."""

    cdef object code
    cdef tuple names
    cdef dict keys
    cdef dict known
    cdef set granted
    cdef str name  # of the user, as below those of the last request
    cdef tuple values
    cdef tuple grant

    def __init__(self, int code, tuple names, dict keys, dict known, set granted):
        self.code, self.names, self.keys, self.known, self.granted = code, names, keys, known, granted

    def passes(self, object text, bytes body, int version, tuple address):
        """Tell whether a request is one of those; ``text`` is the JSON of its fields."""
        cdef Py_buffer view
        cdef SignedFields found
        cdef uint8_t short_values[MOST_SHORT_VALUES]
        cdef uint8_t given[SIGNATURE_BYTES]
        cdef uint8_t *out = short_values
        cdef bytes long_values
        cdef Sha1Halves halves
        PyObject_GetBuffer(text, &view, PyBUF_SIMPLE)
        try:
            if not read_signed(&found, <const uint8_t *>view.buf, view.len, version):
                return False
            if found.signature.size != SIGNATURE_BYTES:
                return False
            if found.total > MOST_SHORT_VALUES:
                long_values = PyBytes_FromStringAndSize(NULL, found.total)
                out = <uint8_t *>PyBytes_AS_STRING(long_values)
            write_values(&found, out)
            if not found.is_plain:
                PyUnicode_FromStringAndSize(<const char *>view.buf, view.len)
            halves = self.find_halves(&found, out, address)
            if halves is None:
                return False
            write_value(found.signature, given)
            return halves.are_those_of(given, out, found.total, body)
        except UnicodeDecodeError:
            return False
        finally:
            PyBuffer_Release(&view)

    cdef Sha1Halves find_halves(self, const SignedFields *found, const uint8_t *out, tuple address):
        """Return those of the user, ``None`` where just this was not granted before."""
        if not self.is_like_last(found, out, address[0]):
            self.name, self.values = text_of(found.user, out), texts_of(found, out, self.names)
            self.grant = self.code, self.name, address[0], self.values
        key = self.keys.get(self.name)
        users = self.known.get(address)
        if key is None or users is None or self.name not in <set>users:
            return None
        if self.granted is not None and self.grant not in self.granted:
            return None
        return <Sha1Halves?>key.halves

    cdef bint is_like_last(self, const SignedFields *found, const uint8_t *out, object source_ip):
        """Tell whether the same is asked for as the last time, so that the texts to look up are there."""
        cdef Py_ssize_t at
        cdef const Field *field
        if self.grant is None or self.grant[2] != source_ip or not is_text(found.user, out, self.name):
            return False
        for at in range(len(self.names)):
            field = find_field(found, self.names[at])
            text = self.values[at]
            if (field == NULL) != (text is None) or (field != NULL and not is_text(field, out, text)):
                return False
        return True


cdef uint8_t _IS_PLAIN[256]
for _letter in range(256):
    _IS_PLAIN[_letter] = 0x20 <= _letter <= 0x7E and _letter not in b'"\\'


cdef bint read_signed(SignedFields *found, const uint8_t *data, Py_ssize_t size, int version) noexcept nogil:
    """Tell whether what is usual could be read from the JSON of the fields: all that is signed, in its order."""
    cdef const uint8_t *at = data + 1
    cdef const uint8_t *end = data + size - 1
    cdef Py_ssize_t index, count = 0
    cdef int compared
    if size < 2 or data[0] != c'{' or end[0] != c'}':
        return False
    found.is_plain = True
    while at < end:
        if count == MOST_SIGNED_FIELDS:
            return False
        at = read_field(&found.fields[count], at, end, &found.is_plain)
        if at == NULL:
            return False
        index = count
        while index:
            compared = compare_names(&found.fields[count], found.order[index - 1])
            if compared == 0:
                return False
            if compared > 0:
                break
            found.order[index] = found.order[index - 1]
            index -= 1
        found.order[index] = &found.fields[count]
        count += 1
    found.count = count
    return place_values(found, version)


cdef const uint8_t *read_field(Field *field, const uint8_t *at, const uint8_t *end, bint *is_plain) noexcept nogil:
    """Return where the next field begins, or the end; ``NULL`` for what is not usual."""
    cdef Py_ssize_t escapes = 0
    if at[0] != c'"':
        return NULL
    at += 1
    field.name = at
    while at < end and _IS_PLAIN[at[0]]:
        at += 1
    if at >= end or at[0] != c'"':
        return NULL
    field.name_size = at - field.name
    if end - at < 3 or at[1] != c':' or at[2] != c'"':
        return NULL
    at += 3
    field.value = at
    while True:
        while at < end and _IS_PLAIN[at[0]]:
            at += 1
        if at >= end or at[0] < 0x20:
            return NULL
        if at[0] == c'"':
            break
        if at[0] == c'\\':
            if end - at < 2:
                return NULL
            if at[1] == c'u':
                if end - at < 6 or at[2] != c'0' or at[3] != c'0' or read_hex(at[4]) > 7 or read_hex(at[5]) > 15:
                    return NULL
                at += 4
                escapes += 4
            elif unescape(at[1]) == 0:
                return NULL
            at += 1
            escapes += 1
        else:
            is_plain[0] = False
        at += 1
    field.raw_size = at - field.value
    field.size = field.raw_size - escapes
    at += 1
    if at < end:
        if at[0] != c',' or end - at < 2:
            return NULL
        at += 1
    return at


cdef bint place_values(SignedFields *found, int version) noexcept nogil:
    """Tell whether somebody has signed without a token, and say where each value stands in what is signed."""
    cdef Field *field
    cdef Py_ssize_t index, total = 0
    found.user = found.signature = NULL
    for index in range(found.count):
        field = found.order[index]
        field.start = -1
        if is_named(field, b"Signature", 9):
            found.signature = field
            continue
        if is_named(field, b"SecurityToken", 13):
            return False
        if is_named(field, b"AccessKey", 9):
            found.user = field
        if version <= LAST_VERSION_WITHOUT_MARKS and is_named(field, b"_UNIQUE_KEY_QUERY", 17):
            continue
        field.start = total
        total += field.size
    found.total = total
    return found.user != NULL and found.signature != NULL and found.user.size > 0


cdef void write_values(const SignedFields *found, uint8_t *out) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(found.count):
        if found.order[index].start >= 0:
            write_value(found.order[index], out + found.order[index].start)


cdef str text_of(const Field *field, const uint8_t *out):
    return PyUnicode_FromStringAndSize(<const char *>out + field.start, field.size)


cdef bint is_text(const Field *field, const uint8_t *out, str text):
    cdef Py_ssize_t size
    cdef const char *expected = PyUnicode_AsUTF8AndSize(text, &size)
    return field.size == size and memcmp(out + field.start, expected, size) == 0


cdef const Field *find_field(const SignedFields *found, str wanted) except? NULL:
    """Return a field that is signed, ``NULL`` if it is not there."""
    cdef Py_ssize_t index, size
    cdef const char *name = PyUnicode_AsUTF8AndSize(wanted, &size)
    for index in range(found.count):
        if found.order[index].start >= 0 and is_named(found.order[index], name, size):
            return found.order[index]
    return NULL


cdef tuple texts_of(const SignedFields *found, const uint8_t *out, tuple names):
    """Return the values of fields that are signed, ``None`` of those that are not there."""
    cdef const Field *field
    cdef list values = []
    for wanted in names:
        field = find_field(found, wanted)
        values.append(None if field == NULL else text_of(field, out))
    return tuple(values)


cdef inline bint is_named(const Field *field, const char *name, Py_ssize_t size) noexcept nogil:
    return field.name_size == size and memcmp(field.name, name, size) == 0


cdef inline int compare_names(const Field *one, const Field *other) noexcept nogil:
    cdef int found
    if one.name_size and other.name_size and one.name[0] != other.name[0]:
        return <int>one.name[0] - other.name[0]
    found = memcmp(one.name, other.name, min(one.name_size, other.name_size))
    if found:
        return found
    return (one.name_size > other.name_size) - (one.name_size < other.name_size)


cdef inline uint8_t read_hex(uint8_t digit) noexcept nogil:
    if c'0' <= digit <= c'9':
        return digit - c'0'
    if c'a' <= (digit | 0x20) <= c'f':
        return (digit | 0x20) - c'a' + 10
    return 0xFF


cdef inline uint8_t unescape(uint8_t letter) noexcept nogil:
    """Return what an escape of one letter stands for, 0 if there is none."""
    if letter == c'"' or letter == c'\\' or letter == c'/':
        return letter
    if letter == c'b':
        return 8
    if letter == c'f':
        return 12
    if letter == c'n':
        return 10
    if letter == c'r':
        return 13
    if letter == c't':
        return 9
    return 0


cdef void write_value(const Field *field, uint8_t *out) noexcept nogil:
    """Write a value without its escapes, all of which have been looked at."""
    cdef const uint8_t *at = field.value
    cdef const uint8_t *end = at + field.raw_size
    if field.size == field.raw_size:
        memcpy(out, at, field.size)
        return
    while at < end:
        if at[0] != c'\\':
            out[0] = at[0]
            at += 1
        elif at[1] == c'u':
            out[0] = (read_hex(at[4]) << 4) | read_hex(at[5])
            at += 6
        else:
            out[0] = unescape(at[1])
            at += 2
        out += 1


cdef enum:
    LETTERS = 14  # names of the fields of a send, from "a" on
    MOST_INT_DIGITS = 9
    MOST_LONG_DIGITS = 18


def read_send(object text, bytes body, bytes born_host, bytes own, frozenset needs_care, object make):
    """Return what is stored of a message that needs no care (``PlainSends``), by ``make``; ``None`` of any other.

    ``text`` is the JSON of the fields, ``own`` the text of the properties that the broker adds. Whatever is not written
    as usual is left to Python, and so are messages whose properties are among ``needs_care`` or have no unique key.
    """
    cdef Py_buffer view
    cdef Field fields[LETTERS]
    cdef int64_t queue_id, sys_flag, born_at_ms, flag, other, reconsume_times = 0
    cdef bytes properties
    PyObject_GetBuffer(text, &view, PyBUF_SIMPLE)
    try:
        if not PyBytes_GET_SIZE(body) or not read_letters(fields, <const uint8_t *>view.buf, view.len):
            return None
        if not (
            read_number(letter(fields, c"e"), MOST_INT_DIGITS, &queue_id)
            and read_number(letter(fields, c"f"), MOST_INT_DIGITS, &sys_flag)
            and read_number(letter(fields, c"g"), MOST_LONG_DIGITS, &born_at_ms)
            and read_number(letter(fields, c"h"), MOST_INT_DIGITS, &flag)
        ):
            return None
        if letter(fields, c"b").name == NULL or letter(fields, c"i").name == NULL:
            return None
        for optional in b"djl":
            if letter(fields, optional).name != NULL:
                if not read_number(letter(fields, optional), MOST_INT_DIGITS, &other):
                    return None
                if optional == c"j":
                    reconsume_times = other
        if not is_false(letter(fields, c"m")) or not (is_false(letter(fields, c"k")) or is_true(letter(fields, c"k"))):
            return None
        properties = complete_properties(letter(fields, c"i"), own, needs_care)
        if properties is None:
            return None
        return make(
            text_in(letter(fields, c"b")), queue_id, body, properties, None, flag, sys_flag, born_at_ms, born_host,
            reconsume_times,
        )
    finally:
        PyBuffer_Release(&view)


cdef inline Field *letter(Field *fields, uint8_t name) noexcept nogil:
    return &fields[name - c"a"]


cdef bint read_letters(Field *fields, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Tell whether all fields are texts of ASCII with plain names, those with letters for names each there once."""
    cdef const uint8_t *at = data + 1
    cdef const uint8_t *end = data + size - 1
    cdef Field found
    cdef Py_ssize_t index
    cdef bint is_plain = True
    for index in range(LETTERS):
        fields[index].name = NULL
    if size < 2 or data[0] != c"{" or end[0] != c"}":
        return False
    while at < end:
        at = read_field(&found, at, end, &is_plain)
        if at == NULL or not is_plain:
            return False
        if found.name_size == 1 and c"a" <= found.name[0] < c"a" + LETTERS:
            index = found.name[0] - c"a"
            if fields[index].name != NULL:
                return False
            fields[index] = found
    return True


cdef bint read_number(const Field *field, Py_ssize_t most_digits, int64_t *number) noexcept nogil:
    """Tell whether a field is there and holds a number as it is usually written, without a sign."""
    cdef Py_ssize_t at
    if field.name == NULL or not 0 < field.raw_size <= most_digits or (field.value[0] == c"0" and field.raw_size > 1):
        return False
    number[0] = 0
    for at in range(field.raw_size):
        if not c"0" <= field.value[at] <= c"9":
            return False
        number[0] = 10 * number[0] + field.value[at] - c"0"
    return True


cdef bint is_false(const Field *field) noexcept nogil:
    return field.name == NULL or (field.raw_size == 5 and memcmp(field.value, b"false", 5) == 0)


cdef bint is_true(const Field *field) noexcept nogil:
    return field.raw_size == 4 and memcmp(field.value, b"true", 4) == 0


cdef str text_in(const Field *field):
    cdef bytes text
    if field.size == field.raw_size:
        return PyUnicode_FromStringAndSize(<const char *>field.value, field.size)
    text = PyBytes_FromStringAndSize(NULL, field.size)
    write_value(field, <uint8_t *>PyBytes_AS_STRING(text))
    return PyUnicode_FromStringAndSize(PyBytes_AS_STRING(text), field.size)


cdef bytes complete_properties(const Field *field, bytes own, frozenset needs_care):
    """Return the text of properties with those of the broker behind it (``PropertyEnricher.enrich``)."""
    cdef Py_ssize_t size = field.size, own_size = PyBytes_GET_SIZE(own), name_size, chunk_size
    cdef const uint8_t *last = field.value + field.raw_size - 6
    cdef bint is_ended = field.raw_size >= 6 and memcmp(last, b"\\u0002", 6) == 0, has_key = False
    cdef bytes result = PyBytes_FromStringAndSize(NULL, size + (not is_ended) + own_size)
    cdef uint8_t *text = <uint8_t *>PyBytes_AS_STRING(result)
    cdef const uint8_t *chunk = text
    write_value(field, text)
    if not is_ended:
        text[size] = 2
        size += 1
    elif text[size - 1] != 2:
        return None  # an escaped backslash before it
    while chunk < text + size:
        chunk_size = <const uint8_t *>memchr(chunk, 2, text + size - chunk) - chunk
        name_size = find_name(chunk, chunk_size)
        if name_size:
            if name_size == 8 and memcmp(chunk, b"UNIQ_KEY", 8) == 0:
                has_key = True
            elif PyBytes_FromStringAndSize(<const char *>chunk, name_size) in needs_care:
                return None
        chunk += chunk_size + 1
    memcpy(text + size, PyBytes_AS_STRING(own), own_size)
    return result if has_key else None


cdef inline Py_ssize_t find_name(const uint8_t *chunk, Py_ssize_t size) noexcept nogil:
    """Return how long the name of a property is, 0 if the chunk holds none that counts."""
    cdef const uint8_t *mark = <const uint8_t *>memchr(chunk, 1, size)
    return 0 if mark == NULL or mark + 1 == chunk + size else mark - chunk


def answer_send(object stored, bytes host_text, tuple pieces, int64_t opaque):
    """Return the frame that answers a stored message (``SendReplies.stored``), ``None`` if its key is not usual.

    ``pieces`` are what stands before, between and behind message id, queue, place in it, unique key and opaque.
    """
    cdef int64_t log_offset = stored.log_offset, queue_id = stored.queue_id, queue_offset = stored.queue_offset
    cdef bytes properties = stored.property_text, result
    cdef bytes first = pieces[0], second = pieces[1], third = pieces[2], fourth = pieces[3], fifth = pieces[4]
    cdef bytes last = pieces[5]
    cdef uint8_t numbers[3][MOST_DIGITS]
    cdef Py_ssize_t sizes[3]
    cdef const uint8_t *key = NULL
    cdef Py_ssize_t key_size = find_key(properties, &key), size = 0, number
    cdef uint8_t *out
    if key_size == 0:
        return None
    sizes[0] = format_number(numbers[0], queue_id)
    sizes[1] = format_number(numbers[1], queue_offset)
    sizes[2] = format_number(numbers[2], opaque)
    for piece in pieces:
        size += PyBytes_GET_SIZE(piece)
    size += PyBytes_GET_SIZE(host_text) + HEX_DIGITS + sizes[0] + sizes[1] + 2 + key_size + sizes[2]
    result = PyBytes_FromStringAndSize(NULL, 8 + size)
    out = <uint8_t *>PyBytes_AS_STRING(result)
    write_size(out, size + 4)
    write_size(out + 4, size)
    out = write_bytes(write_bytes(out + 8, first), host_text)
    for number in range(HEX_DIGITS):
        out[number] = <uint8_t>_HEX[(log_offset >> (4 * (HEX_DIGITS - 1 - number))) & 15]
    out = write_bytes(out + HEX_DIGITS, second)
    out = write_bytes(write_text(out, numbers[0], sizes[0]), third)
    out = write_bytes(write_text(out, numbers[1], sizes[1]), fourth)
    out[0] = c'"'
    out = write_text(out + 1, key, key_size)
    out[0] = c'"'
    out = write_bytes(out + 1, fifth)
    write_bytes(write_text(out, numbers[2], sizes[2]), last)
    return result


cdef enum:
    MOST_DIGITS = 20
    HEX_DIGITS = 16


cdef const char *_HEX = b"0123456789ABCDEF"


cdef Py_ssize_t find_key(bytes properties, const uint8_t **key) noexcept:
    """Return how long the unique key is, the last of several, 0 if there is none that JSON holds as it is."""
    cdef const uint8_t *chunk = <const uint8_t *>PyBytes_AS_STRING(properties)
    cdef const uint8_t *end = chunk + PyBytes_GET_SIZE(properties)
    cdef const uint8_t *chunk_end
    cdef Py_ssize_t size = 0, at
    while chunk < end:
        chunk_end = <const uint8_t *>memchr(chunk, 2, end - chunk)
        if chunk_end == NULL:
            chunk_end = end
        if chunk_end - chunk > 9 and memcmp(chunk, b"UNIQ_KEY\x01", 9) == 0:
            key[0] = chunk + 9
            size = chunk_end - key[0]
        chunk = chunk_end + 1
    for at in range(size):
        if not _IS_PLAIN[key[0][at]]:
            return 0
    return size


cdef Py_ssize_t format_number(uint8_t *out, int64_t number) noexcept nogil:
    """Write a number, and return how many bytes it takes."""
    cdef uint8_t digits[MOST_DIGITS]
    cdef uint64_t left = -<uint64_t>number if number < 0 else <uint64_t>number
    cdef Py_ssize_t count = 0, size = 0
    while True:
        digits[count] = c"0" + left % 10
        left //= 10
        count += 1
        if not left:
            break
    if number < 0:
        out[0] = c"-"
        size = 1
    while count:
        count -= 1
        out[size] = digits[count]
        size += 1
    return size


cdef inline uint8_t *write_bytes(uint8_t *out, bytes data) noexcept:
    memcpy(out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return out + PyBytes_GET_SIZE(data)


cdef inline uint8_t *write_text(uint8_t *out, const uint8_t *text, Py_ssize_t size) noexcept nogil:
    memcpy(out, text, size)
    return out + size


cdef inline void write_size(uint8_t *out, Py_ssize_t size) noexcept nogil:
    out[0], out[1], out[2], out[3] = size >> 24 & 0xFF, size >> 16 & 0xFF, size >> 8 & 0xFF, size & 0xFF


def cut_commands(bytes data, Py_ssize_t position, Py_ssize_t most_total, list commands, object read):
    """Add the commands of usual frames from a position on, and return where the first that is none begins.

    ``read`` makes a command of a JSON header; what it refuses, and whatever else ``FrameParser`` looks at twice, is left
    to that.
    """
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *at
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), total, header_size
    while end - position >= 8:
        at = start + position
        total = <int32_t>read_size(at)
        header_size = read_size(at + 4)
        if not 4 <= total <= most_total or total > end - position - 4 or header_size > total - 4:
            return position
        try:
            command = read(PyBytes_FromStringAndSize(<const char *>at + 8, header_size))
        except Exception:
            return position
        command.serialize = 0
        command.body = PyBytes_FromStringAndSize(<const char *>at + 8 + header_size, total - 4 - header_size)
        commands.append(command)
        position += 4 + total
    return position


cdef inline uint32_t read_size(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]
