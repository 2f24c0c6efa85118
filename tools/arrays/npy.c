/* SPDX-License-Identifier: MIT */
/*
 * NumPy's .npy files
 *
 * A file has eight bytes of magic and version, the length of the header (16 bits in format 1, 32
 * bits in formats 2 and 3), the header, and the elements. The header is a Python literal, a
 * dictionary of three items:
 *
 *	{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * The items are accepted in any order and with any spacing, but only with the syntax that they
 * need: strings without escapes, the two booleans, and tuples of numbers. A descr that is a list
 * denotes a record type. All elements must be present and must end the file, so that the file's
 * size bounds the shape.
 */
#include "arrays/array.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrays/write.h"
#include "util/cleanup.h"

/* NumPy itself accepts headers of up to 10,000 bytes. */
enum { MAGIC_BYTES = 8, MAX_HEADER_BYTES = 65536 };
/* Bytes up to the end of the longest form of the length field; every valid file has that many. */
enum { FIRST_BYTES = MAGIC_BYTES + 4 };

static const unsigned char magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* ---- The header --------------------------------------------------------------------------- */

struct text {
	const char *at, *end;
};

static void skip_space(struct text *text)
{
	while (text->at < text->end &&
	       (*text->at == ' ' || *text->at == '\n' || *text->at == '\t' || *text->at == '\r'))
		text->at++;
}

static bool take(struct text *text, char c)
{
	skip_space(text);
	if (text->at == text->end || *text->at != c)
		return false;
	text->at++;
	return true;
}

static bool take_word(struct text *text, const char *word)
{
	size_t n = strlen(word);

	skip_space(text);
	if ((size_t)(text->end - text->at) < n || memcmp(text->at, word, n) != 0)
		return false;
	text->at += n;
	return true;
}

/*
 * Read a string in quotes of either kind, without escapes.
 * Return: false if there is none, or if it is too long.
 */
static bool take_string(struct text *text, char *ret, size_t ret_bytes)
{
	char quote;
	size_t n;

	skip_space(text);
	if (text->at == text->end || (*text->at != '\'' && *text->at != '"'))
		return false;
	quote = *text->at++;
	for (n = 0; text->at < text->end && *text->at != quote; n++) {
		if (n + 1 >= ret_bytes || *text->at < 0x20 || *text->at > 0x7e)
			return false;
		ret[n] = *text->at++;
	}
	ret[n] = '\0';
	return take(text, quote);
}

static bool take_number(struct text *text, int64_t *ret)
{
	int64_t value = 0;
	bool has_digits = false;

	skip_space(text);
	for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, *text->at - '0', &value))
			return false;
		has_digits = true;
	}
	/* Python 2 appended L to long integers. */
	if (has_digits && text->at < text->end && *text->at == 'L')
		text->at++;
	*ret = value;
	return has_digits;
}

struct header {
	char descr[32];
	bool is_record; /* descr is a list */
	bool is_fortran;
	bool has_descr, has_order, has_shape;
	bool is_deep; /* more dimensions than ARRAY_MAX_RANK */
	unsigned int rank;
	int64_t dims[ARRAY_MAX_RANK];
};

static bool take_shape(struct text *text, struct header *header)
{
	int64_t dim;

	if (!take(text, '('))
		return false;
	while (!take(text, ')')) {
		if (!take_number(text, &dim))
			return false;
		if (header->rank < ARRAY_MAX_RANK)
			header->dims[header->rank++] = dim;
		else
			header->is_deep = true;
		if (!take(text, ',')) {
			if (!take(text, ')'))
				return false;
			break;
		}
	}
	return true;
}

static bool take_item(struct text *text, struct header *header)
{
	char key[32];

	if (!take_string(text, key, sizeof(key)) || !take(text, ':'))
		return false;
	if (strcmp(key, "descr") == 0 && !header->has_descr) {
		header->has_descr = true;
		skip_space(text);
		header->is_record = text->at < text->end && *text->at == '[';
		return header->is_record || take_string(text, header->descr, sizeof(header->descr));
	}
	if (strcmp(key, "fortran_order") == 0 && !header->has_order) {
		header->has_order = true;
		header->is_fortran = take_word(text, "True");
		return header->is_fortran || take_word(text, "False");
	}
	if (strcmp(key, "shape") == 0 && !header->has_shape) {
		header->has_shape = true;
		return take_shape(text, header);
	}
	return false;
}

/*
 * Parse the header. Nothing after a record type is parsed.
 * Return: false if it is no valid header.
 */
static bool parse_header(const char *at, size_t n_bytes, struct header *ret)
{
	struct text text = {at, at + n_bytes};

	*ret = (struct header){.rank = 0};
	if (!take(&text, '{'))
		return false;
	while (!take(&text, '}')) {
		if (!take_item(&text, ret))
			return false;
		if (ret->is_record)
			return true;
		if (!take(&text, ',')) {
			if (!take(&text, '}'))
				return false;
			break;
		}
	}
	skip_space(&text);
	return text.at == text.end && ret->has_descr && ret->has_order && ret->has_shape;
}

/* Return: the type; 0 if it is not supported, with the end of a sentence in @ret_why. */
static uint32_t dtype_of(const char *descr, const char **ret_why)
{
	static const struct {
		const char *code;
		uint32_t dtype;
	} known[] = {{"f4", ARRAY_F32},  {"f2", ARRAY_F16}, {"i4", ARRAY_I32},
		     {"i8", ARRAY_I64},  {"u1", ARRAY_U8},  {"i1", ARRAY_I8},
		     {"b1", ARRAY_BOOL}, {"?", ARRAY_BOOL}, {"f8", ARRAY_F64}};
	bool has_order = descr[0] && strchr("<>=|", descr[0]);
	const char *code = descr + has_order;

	*ret_why = strcmp(code, "V2") == 0
			   ? ", as NumPy writes bfloat16 and other types alike: save it as a "
			     "TensorProto in a .pb file"
			   : "";
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(code, known[i].code) != 0)
			continue;
		*ret_why = ", which is big endian: save it as little endian";
		return descr[0] == '>' && array_dtype_bytes(known[i].dtype) > 1 ? 0
										: known[i].dtype;
	}
	return 0;
}

/* ---- Elements ----------------------------------------------------------------------------- */

/* Convert from Fortran order, in which the first index varies fastest. */
static void copy_to_c_order(const struct array *array, const char *from, char *to)
{
	size_t width = array_dtype_bytes(array->dtype);
	int64_t at[ARRAY_MAX_RANK] = {0};
	size_t strides[ARRAY_MAX_RANK];
	size_t stride = width, offset = 0;

	for (unsigned int i = 0; i < array->rank; i++) {
		strides[i] = stride;
		stride *= (size_t)array->dims[i];
	}
	for (uint64_t n = 0; n < array->n_elems; n++) {
		memcpy(to + n * width, from + offset, width);
		for (unsigned int i = array->rank; i-- > 0;) {
			offset += strides[i];
			if (++at[i] < array->dims[i])
				break;
			offset -= strides[i] * (size_t)array->dims[i];
			at[i] = 0;
		}
	}
}

/*
 * Return the offset of the header in a file that begins with the FIRST_BYTES of @bytes; *@ret_end
 * receives the offset of its end.
 */
static size_t header_at(const unsigned char *bytes, size_t *ret_end)
{
	const size_t at = bytes[6] == 1 ? MAGIC_BYTES + 2 : MAGIC_BYTES + 4;
	size_t length = bytes[8] | (size_t)bytes[9] << 8;

	if (bytes[6] > 1)
		length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
	*ret_end = at + length;
	return at;
}

/*
 * Check that @bytes begin a .npy file with a supported header.
 * Return: 0, or as array_parse_npy().
 */
static int check_first(const unsigned char *bytes, size_t n_bytes, const char *name,
		       char why[ARRAY_WHY_BYTES])
{
	size_t at, end;

	if (n_bytes >= 4 && memcmp(bytes, "PK\3\4", 4) == 0)
		return array_refuse(why, -EOPNOTSUPP, name,
				    "is a ZIP archive, as .npz files are: unpack it with unzip, "
				    "and give its .npy files one by one");
	if (n_bytes < sizeof(magic) || memcmp(bytes, magic, sizeof(magic)) != 0)
		return array_refuse(why, -EBADMSG, name, "is not a .npy file");
	if (n_bytes < MAGIC_BYTES)
		return array_refuse(why, -EBADMSG, name, "is cut short in its header");
	if (bytes[6] < 1 || bytes[6] > 3)
		return array_refuse(why, -EOPNOTSUPP, name,
				    "is a .npy file of format %u.%u; 1, 2 and 3 are known",
				    bytes[6], bytes[7]);
	if (n_bytes < FIRST_BYTES)
		return array_refuse(why, -EBADMSG, name, "is cut short in its header");
	at = header_at(bytes, &end);
	if (end - at > MAX_HEADER_BYTES)
		return array_refuse(why, -EBADMSG, name, "has a header of %zu bytes", end - at);
	return 0;
}

/*
 * Parse the header. Fill *@ret except for its elements, whose offset is stored in *@ret_at.
 * Return: 0, or as array_parse_npy().
 */
static int parse_start(const unsigned char *bytes, size_t n_bytes, const char *name,
		       struct array *ret, size_t *ret_at, bool *ret_is_fortran,
		       char why[ARRAY_WHY_BYTES])
{
	int r = check_first(bytes, n_bytes, name, why);
	struct header header;
	const char *reason;
	size_t at, end;

	if (r)
		return r;
	at = header_at(bytes, &end);
	if (n_bytes < end)
		return array_refuse(why, -EBADMSG, name, "is cut short in its header");
	if (!parse_header((const char *)bytes + at, end - at, &header))
		return array_refuse(why, -EBADMSG, name, "has a header that cannot be read");
	if (header.is_record)
		return array_refuse(why, -EOPNOTSUPP, name, "has elements of several fields");
	if (header.is_deep)
		return array_refuse(why, -EOPNOTSUPP, name, "has more than %d dimensions",
				    (int)ARRAY_MAX_RANK);
	ret->dtype = dtype_of(header.descr, &reason);
	if (!ret->dtype)
		return array_refuse(
			why, -EOPNOTSUPP, name,
			"has elements of type '%s'%s; float32, float16, float64, int8, uint8, "
			"int32, int64 and bool are known",
			header.descr, reason);
	ret->rank = header.rank;
	memcpy(ret->dims, header.dims, sizeof(header.dims));
	if (array_measure(ret))
		return array_refuse(why, -EBADMSG, name, "has an impossible shape");
	*ret_at = end;
	*ret_is_fortran = header.is_fortran;
	return 0;
}

int array_parse_npy(const void *bytes, size_t n_bytes, const char *name, struct array *ret,
		    char why[ARRAY_WHY_BYTES])
{
	struct array array = {.rank = 0};
	bool is_fortran = false;
	const char *elements;
	size_t at = 0, left;
	int r;

	r = parse_start(bytes, n_bytes, name, &array, &at, &is_fortran, why);
	if (r)
		return r;
	elements = (const char *)bytes + at;
	left = n_bytes - at;
	if (left != array.bytes)
		return array_refuse(why, -EBADMSG, name, "has %zu bytes of elements, not %zu: %s",
				    left, array.bytes,
				    left < array.bytes ? "it is cut short"
						       : "there are bytes "
							 "after the last "
							 "element");
	array.data = elements;
	if (is_fortran && array.rank > 1 && array.n_elems > 1) {
		array.owned = malloc(array.bytes);
		if (!array.owned)
			return array_refuse(why, -ENOMEM, name,
					    "is too large for this machine's memory");
		copy_to_c_order(&array, elements, array.owned);
		array.data = array.owned;
	}
	*ret = array;
	return 0;
}

/* ---- Files -------------------------------------------------------------------------------- */

/*
 * Read until @end bytes are present, or to the end of the file.
 * Return: 0, or a negative errno.
 */
static int read_until(int fd, unsigned char **bytes, size_t *n_bytes, size_t end)
{
	unsigned char *room;
	ssize_t n;

	if (end <= *n_bytes)
		return 0;
	room = realloc(*bytes, end);
	if (!room)
		return -ENOMEM;
	*bytes = room;
	while (*n_bytes < end) {
		n = read(fd, room + *n_bytes, end - *n_bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		*n_bytes += (size_t)n;
	}
	return 0;
}

/*
 * Read from a pipe or an endless device. Read only as much as the header announces, and one more
 * byte to detect the end. If the array uses the memory that was read, it is kept until
 * array_deinit().
 */
static int read_from_pipe(int fd, const char *path, struct array *ret, char why[ARRAY_WHY_BYTES])
{
	_cleanup_(freep) unsigned char *bytes = NULL;
	struct array start = {.rank = 0};
	size_t n_bytes = 0, end = 0;
	bool is_fortran;
	int r;

	r = read_until(fd, &bytes, &n_bytes, FIRST_BYTES);
	if (r == 0) {
		r = check_first(bytes, n_bytes, path, why);
		if (r)
			return r;
		header_at(bytes, &end);
		r = read_until(fd, &bytes, &n_bytes, end);
	}
	if (r == 0) {
		r = parse_start(bytes, n_bytes, path, &start, &end, &is_fortran, why);
		if (r)
			return r;
		r = read_until(fd, &bytes, &n_bytes, end + start.bytes + 1);
	}
	if (r)
		return array_refuse(why, r, path, "cannot be read: %s", strerror(-r));
	r = array_parse_npy(bytes, n_bytes, path, ret, why);
	if (r == 0 && !ret->owned)
		ret->owned = steal_ptr(bytes);
	return r;
}

int array_read_npy(const char *path, struct array *ret, char why[ARRAY_WHY_BYTES])
{
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	void *mapping;
	size_t bytes;
	int r;

	if (fd < 0 || fstat(fd, &status) < 0) {
		r = -errno;
		return array_refuse(why, r, path, "cannot be opened: %s", strerror(-r));
	}
	if (!S_ISREG(status.st_mode))
		return read_from_pipe(fd, path, ret, why);
	if (status.st_size == 0)
		return array_refuse(why, -EBADMSG, path, "is empty");
	bytes = (size_t)status.st_size;
	mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (mapping == MAP_FAILED) {
		r = -errno;
		return array_refuse(why, r, path, "cannot be mapped: %s", strerror(-r));
	}
	r = array_parse_npy(mapping, bytes, path, ret, why);
	if (r || ret->owned) {
		munmap(mapping, bytes);
		return r;
	}
	ret->mapping = mapping;
	ret->mapping_bytes = bytes;
	return 0;
}

bool array_is_npy(const char *path)
{
	_cleanup_(close_fdp) int fd = -1;
	unsigned char start[sizeof(magic)];
	struct stat status;

	/* Reading from a pipe would consume its data. */
	if (stat(path, &status) < 0 || !S_ISREG(status.st_mode))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && pread(fd, start, sizeof(start), 0) == sizeof(start) &&
	       memcmp(start, magic, sizeof(magic)) == 0;
}

int array_write_npy(const char *path, const struct array *array, char why[ARRAY_WHY_BYTES])
{
	static const char *const codes[] = {
		[ARRAY_F32] = "<f4", [ARRAY_U8] = "|u1",  [ARRAY_I8] = "|i1",
		[ARRAY_I32] = "<i4", [ARRAY_I64] = "<i8", [ARRAY_BOOL] = "|b1",
		[ARRAY_F16] = "<f2", [ARRAY_F64] = "<f8"};
	char header[1024];
	int n, used;

	if (array->dtype == ARRAY_BF16)
		return array_refuse(why, -EOPNOTSUPP, path,
				    "cannot be written: a .npy file cannot hold bfloat16; name it "
				    ".pb to write a TensorProto");
	memcpy(header, magic, sizeof(magic));
	header[6] = 1;
	header[7] = 0;
	n = 10 + snprintf(header + 10, sizeof(header) - 10,
			  "{'descr': '%s', 'fortran_order': False, 'shape': (",
			  codes[array->dtype]);
	for (unsigned int i = 0; i < array->rank; i++)
		n += snprintf(header + n, sizeof(header) - (size_t)n, "%lld%s",
			      (long long)array->dims[i],
			      array->rank == 1      ? ","
			      : i + 1 < array->rank ? ", "
						    : "");
	n += snprintf(header + n, sizeof(header) - (size_t)n, "), }");
	/*
	 * Pad the header, which ends with a newline, so that the elements begin at a multiple of 64
	 * bytes.
	 */
	used = (n + 1 + 63) / 64 * 64;
	memset(header + n, ' ', (size_t)(used - n));
	header[used - 1] = '\n';
	header[8] = (char)((used - 10) & 0xff);
	header[9] = (char)((used - 10) >> 8);
	return array_write_file(path, header, (size_t)used, array->data, array->bytes, why);
}
