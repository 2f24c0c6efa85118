/* SPDX-License-Identifier: MIT */
/*
 * Kinds of files that are not models
 *
 * Users sometimes give the wrong file: weights, an input, a picture, or the web page behind a
 * download link. Common kinds are recognised by their first bytes, or by being a valid message of
 * another ONNX type. A truncated model is recognised by a last field that is longer than the file.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "libclient/onnx/graph.h"
#include "libclient/onnx/scan.h"

#define A_MODEL "a model is what torch.onnx.export() or onnx.save() writes"

/*
 * Kinds of files by their first bytes. If the magic is not at the start, the bytes before it must
 * match, too, because a model may have any name there.
 */
static const struct kind {
	const char *begins; /* '.': any byte */
	uint8_t n_bytes;
	const char *what;
} kinds[] = {
	{"\x93NUMPY", 6, "an array of NumPy's (.npy), as inputs of models are"},
	{"PK\3\4", 4, "a ZIP archive, as files of NumPy's (.npz) and of PyTorch's (.pt) are"},
	{"\x80\2", 2, "pickled Python, as files of PyTorch's (.pt) are"},
	{"\x80\3", 2, "pickled Python, as files of PyTorch's (.pt) are"},
	{"\x80\4", 2, "pickled Python, as files of PyTorch's (.pt) are"},
	{"\x80\5", 2, "pickled Python, as files of PyTorch's (.pt) are"},
	{"\x89PNG", 4, "a picture (PNG)"},
	{"\xff\xd8\xff", 3, "a picture (JPEG)"},
	{"GIF8", 4, "a picture (GIF)"},
	{"RIFF....WEBP", 12, "a picture (WebP)"},
	{"\x89HDF", 4, "a file of HDF5, as those of Keras (.h5) are"},
	/* After the offset of the root table, which is small. */
	{"..\0\0TFL3", 8, "a model of TensorFlow Lite's"},
	{"..\0\0ORTM", 8, "a model in ONNX Runtime's own format (.ort)"},
	{"GGUF", 4, "a model of llama.cpp's (.gguf)"},
	/* After the length of the description. */
	{"....\0\0\0\0{\"", 10, "a file of weights alone (.safetensors)"},
	{"\x1f\x8b", 2, "compressed by gzip"},
	{"\x28\xb5\x2f\xfd", 4, "compressed by zstd"},
	{"\xfd"
	 "7zXZ",
	 5, "compressed by xz"},
	{"\x7f"
	 "ELF",
	 4, "a program or a library"},
	{"%PDF", 4, "a document (PDF)"},
	{"version https://git-lfs", 23,
	 "a pointer of Git LFS, which 'git lfs pull' replaces by the file"},
};

static bool begins_as(const struct kind *kind, const uint8_t *bytes, size_t n_bytes)
{
	if (n_bytes < kind->n_bytes)
		return false;
	for (unsigned int i = 0; i < kind->n_bytes; i++)
		if (kind->begins[i] != '.' && (uint8_t)kind->begins[i] != bytes[i])
			return false;
	return true;
}

static const char *kind_by_beginning(const uint8_t *bytes, size_t n_bytes)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (begins_as(&kinds[i], bytes, n_bytes))
			return kinds[i].what;
	return NULL;
}

static bool is_blank(uint8_t byte)
{
	return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\f' || byte == '\r';
}

/* Return the length of a UTF-8 character in bytes; 0: it does not occur in text. */
static size_t character_bytes(const uint8_t *bytes, size_t n)
{
	const size_t length = bytes[0] < 0x80   ? 1
			      : bytes[0] < 0xc2 ? 0
			      : bytes[0] < 0xe0 ? 2
			      : bytes[0] < 0xf0 ? 3
			      : bytes[0] < 0xf5 ? 4
						: 0;

	if (bytes[0] == 0x7f || (bytes[0] < ' ' && !is_blank(bytes[0])))
		return 0;
	for (size_t i = 1; i < length && i < n; i++)
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

/* Examine the first 512 bytes. */
static const char *kind_of_text(const uint8_t *bytes, size_t n_bytes)
{
	const size_t n = n_bytes < 512 ? n_bytes : 512;
	size_t first = 0;

	for (size_t i = 0; i < n;) {
		const size_t length = character_bytes(bytes + i, n - i);

		if (length == 0)
			return NULL;
		i += length;
	}
	while (first < n && is_blank(bytes[first]))
		first++;
	if (first == n)
		return NULL;
	if (n - first >= 5 && (!strncasecmp((const char *)bytes + first, "<html", 5) ||
			       !strncasecmp((const char *)bytes + first, "<!doc", 5)))
		return "a web page, which some downloads give instead of a file";
	return "text";
}

static bool is_sound(const ProtobufCMessageDescriptor *descriptor, const void *bytes,
		     size_t n_bytes)
{
	uint64_t at;

	return !scan_message(descriptor, bytes, n_bytes, &at);
}

/* Tag of a ModelProto's version, which writers of models put before any long field. */
#define MODEL_VERSION_TAG (1 << 3)
/*
 * Tags of a GraphProto's nodes, where ModelProto has a number, and of a TensorProto's type, where
 * ModelProto has a string.
 */
#define GRAPH_NODE_TAG  (1 << 3 | 2)
#define TENSOR_TYPE_TAG (2 << 3)

static const char *kind_of_message(const uint8_t *bytes, size_t n_bytes)
{
	if (is_sound(&onnx__graph_proto__descriptor, bytes, n_bytes) &&
	    scan_has(bytes, n_bytes, GRAPH_NODE_TAG))
		return "the graph of a model, a GraphProto";
	if (is_sound(&onnx__tensor_proto__descriptor, bytes, n_bytes) &&
	    scan_has(bytes, n_bytes, TENSOR_TYPE_TAG))
		return "one array, a TensorProto, as inputs of models are";
	return NULL;
}

int kind_explain(const void *bytes, size_t n_bytes, int r, struct rbk_error *error)
{
	const char *what;
	uint64_t missing;

	if (n_bytes == 0)
		return onnx_error(error, r, "it is empty: was it written or downloaded whole?");
	what = kind_by_beginning(bytes, n_bytes);
	if (!what)
		what = kind_of_text(bytes, n_bytes);
	if (!what)
		what = kind_of_message(bytes, n_bytes);
	if (what)
		return onnx_error(error, r, "it is %s, and no ONNX model; " A_MODEL, what);
	missing = scan_missing(&onnx__model_proto__descriptor, bytes, n_bytes);
	/* A longer length cannot be that of a model: the bytes are something else. */
	if (missing > 0 && missing <= ONNX_MAX_FILE_BYTES - n_bytes &&
	    scan_has(bytes, n_bytes, MODEL_VERSION_TAG))
		return onnx_error(error, r,
				  "it is an ONNX model that is cut off, with at least %llu bytes "
				  "missing at the end: was it written or downloaded whole?",
				  (unsigned long long)missing);
	return r;
}
