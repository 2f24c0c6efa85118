/* SPDX-License-Identifier: MIT */
/* Tests of libclient/onnx: reading model files, sound and hostile */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail-alloc.h"
#include "libclient/onnx/model.h"
#include "libclient/onnx/scan.h"
#include "support/onnx-model.h"
#include "support/test.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

static const int64_t two_by_four[] = {-1, 4}, four[] = {4};

/* Make a sound model: y = Relu(x + b). */
static void make_sound(struct onnx_model *model)
{
	static const float b[] = {1, 2, 3, 4};

	onnx_model_init(model, 13);
	onnx_model_input(model, "x", RBK_ONNX_F32, 2, two_by_four);
	onnx_model_constant(model, "b", RBK_ONNX_F32, 1, four, b, sizeof(b));
	onnx_model_node(model, "Add", "x b", "s");
	onnx_model_node(model, "Relu", "s", "y");
	onnx_model_output(model, "y");
}

static int load(struct onnx_model *made, const char *folder, struct rbk_onnx **ret,
		struct rbk_error *error)
{
	size_t n_bytes;
	const uint8_t *bytes = onnx_model_pack(made, &n_bytes);

	error->text[0] = 0;
	return rbk_onnx_load_bytes(bytes, n_bytes, folder, ret, error);
}

/* Expect bytes that are no model to be refused, with the reason in @error. */
static void refuse_bytes(const void *bytes, size_t n_bytes, struct rbk_error *error)
{
	struct rbk_onnx *model = NULL;

	assert_int_equal(rbk_onnx_load_bytes(bytes, n_bytes, NULL, &model, error), -EBADMSG);
	assert_null(model);
}

/* Expect loading to fail with @r and a sentence that contains @words. Frees the made model. */
static void expect_refused(struct onnx_model *made, int r, const char *words)
{
	struct rbk_onnx *model = NULL;
	struct rbk_error error;
	int got = load(made, NULL, &model, &error);

	if (got != r || !strstr(error.text, words))
		fail_msg("expected %d \"%s\", got %d \"%s\"", r, words, got, error.text);
	assert_null(model);
	onnx_model_deinit(made);
}

TEST(test_load__sound)
{
	struct rbk_onnx_value value;
	struct onnx_model made;
	struct rbk_onnx *model;
	struct rbk_error error;

	make_sound(&made);
	assert_int_equal(load(&made, NULL, &model, &error), 0);
	onnx_model_deinit(&made);
	assert_int_equal(rbk_onnx_opset(model), 13);
	assert_int_equal(rbk_onnx_n_nodes(model), 2);
	assert_int_equal(rbk_onnx_n_inputs(model), 1);
	assert_int_equal(rbk_onnx_n_outputs(model), 1);
	assert_int_equal(rbk_onnx_input(model, 0, &value), 0);
	assert_string_equal(value.name, "x");
	assert_fields(value, (dtype, RBK_ONNX_F32), (rank, 2), (dims[0], RBK_ONNX_DIM_OPEN));
	assert_string_equal(value.dim_names[0], "N");
	assert_int_equal(value.dims[1], 4);
	assert_false(value.is_optional);
	assert_int_equal(rbk_onnx_input(model, 1, &value), -EINVAL);
	assert_int_equal(rbk_onnx_output(model, 1, &value), -EINVAL);
	rbk_onnx_free(model);
	assert_null(rbk_onnx_free(NULL));
}

/* The newest version counts, whatever its position and whichever name of the domain it uses. */
TEST(test_load__domain_imported_twice)
{
	char long_name[] = "ai.onnx";

	for (unsigned int newest = 0; newest < 2; newest++) {
		Onnx__OperatorSetIdProto other = ONNX__OPERATOR_SET_ID_PROTO__INIT;
		Onnx__OperatorSetIdProto *imports[2] = {&other, &other};
		struct onnx_model made;
		struct rbk_onnx *model;
		struct rbk_error error;

		make_sound(&made);
		other.domain = long_name;
		other.has_version = 1;
		other.version = 11;
		imports[newest] = &made.opset;
		made.proto.opset_import = imports;
		made.proto.n_opset_import = 2;
		assert_int_equal(load(&made, NULL, &model, &error), 0);
		assert_int_equal(rbk_onnx_opset(model), 13);
		rbk_onnx_free(model);
		onnx_model_deinit(&made);
	}
}

/*
 * A model cut off at any byte is refused, unless that part is a valid model itself. The parser
 * never reads beyond the end.
 */
TEST(test_load__truncated)
{
	struct onnx_model made;
	struct rbk_onnx *model;
	struct rbk_error error;
	const uint8_t *bytes;
	size_t n_bytes;

	make_sound(&made);
	bytes = onnx_model_pack(&made, &n_bytes);
	for (size_t n = 0; n < n_bytes; n++) {
		uint8_t *part = malloc(n + !n);

		memcpy(part, bytes, n);
		if (!rbk_onnx_load_bytes(part, n, NULL, &model, &error))
			rbk_onnx_free(model);
		else
			assert_true(error.text[0] != 0);
		free(part);
	}
	onnx_model_deinit(&made);
}

TEST(test_load__not_a_model)
{
	static const char text[] = "GIF89a, and a lot of other things that are not a model";
	struct rbk_onnx *model;
	struct rbk_error error;

	assert_int_equal(rbk_onnx_load_bytes("", 0, NULL, &model, &error), -EBADMSG);
	assert_int_equal(rbk_onnx_load_bytes(text, sizeof(text), NULL, &model, &error), -EBADMSG);
	assert_int_equal(rbk_onnx_load_bytes(NULL, 4, NULL, &model, &error), -EINVAL);
	assert_int_equal(rbk_onnx_load("/nonexistent/model.onnx", &model, &error), -ENOENT);
	assert_non_null(strstr(error.text, "/nonexistent/model.onnx"));
	assert_int_equal(rbk_onnx_load("/dev/zero", &model, &error), -EBADMSG);
	assert_int_equal(rbk_onnx_load("/", &model, NULL), -EBADMSG);
}

/* The error names the kind of file, recognised by its first bytes. */
TEST(test_load__kinds)
{
#define FILE_OF(begins, what)                    \
	{                                        \
		begins, sizeof(begins) - 1, what \
	}
	static const struct {
		const char *bytes;
		size_t n_bytes;
		const char *what;
	} files[] = {
		FILE_OF("\x93NUMPY\1\0", "it is an array of NumPy's (.npy)"),
		FILE_OF("PK\3\4\24\0", "it is a ZIP archive"),
		FILE_OF("\x80\2}q\0", "it is pickled Python"),
		FILE_OF("\x80\3}q\0", "it is pickled Python"),
		FILE_OF("\x80\4\x95\0", "it is pickled Python"),
		FILE_OF("\x80\5\x95\0", "it is pickled Python"),
		FILE_OF("\x89PNG\r\n\x1a\n", "it is a picture (PNG)"),
		FILE_OF("\xff\xd8\xff\xe0\0", "it is a picture (JPEG)"),
		FILE_OF("GIF89a\1\0", "it is a picture (GIF)"),
		FILE_OF("RIFF\x24\0\0\0WEBPVP8 ", "it is a picture (WebP)"),
		FILE_OF("\x89HDF\r\n\x1a\n", "it is a file of HDF5"),
		FILE_OF("\x1c\0\0\0TFL3\0\0", "it is a model of TensorFlow Lite's"),
		FILE_OF("\x1c\0\0\0ORTM\0\0", "it is a model in ONNX Runtime's own format (.ort)"),
		FILE_OF("GGUF\3\0\0\0", "it is a model of llama.cpp's (.gguf)"),
		FILE_OF("\x80\0\0\0\0\0\0\0{\"w\":",
			"it is a file of weights alone (.safetensors)"),
		FILE_OF("\x1f\x8b\x08\0", "it is compressed by gzip"),
		FILE_OF("\x28\xb5\x2f\xfd\4", "it is compressed by zstd"),
		FILE_OF("\xfd\x37zXZ\0\0", "it is compressed by xz"),
		FILE_OF("\x7f\x45LF\2\1", "it is a program or a library"),
		FILE_OF("%PDF-1.7\n\xe2\xe3", "it is a document (PDF)"),
		FILE_OF("version https://git-lfs.github.com/spec/v1\noid",
			"it is a pointer of Git LFS"),
		FILE_OF("<html lang=\"en\">", "it is a web page"),
		FILE_OF("\n <!DOCTYPE html>\n", "it is a web page"),
		FILE_OF("ir_version: 8\n", "it is text"),
		FILE_OF("mod\xc3\xa8le \xe2\x82\xac \xf0\x9f\x98\x80\n", "it is text"),
		/* Beginnings of other formats, too short to be recognised. */
		FILE_OF("\x89PN", NULL),
		FILE_OF("\x1c\0\0\0TFL", NULL),
		FILE_OF("\x80\1}q", NULL),
		/* Byte sequences that are not valid UTF-8. */
		FILE_OF("mod\xe8le", NULL),
		FILE_OF("mod\xc0\xa8le", NULL),
	};
#undef FILE_OF
	struct rbk_error error;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		refuse_bytes(files[i].bytes, files[i].n_bytes, &error);
		if (files[i].what ? strncmp(error.text, files[i].what, strlen(files[i].what)) != 0
				  : strstr(error.text, "no ONNX model") != NULL)
			fail_msg("file %zu: \"%s\"", i, error.text);
	}
}

TEST(test_load__cyclic)
{
	struct onnx_model made;

	make_sound(&made);
	onnx_model_node(&made, "Add", "p x", "q");
	onnx_model_node(&made, "Add", "q x", "p");
	expect_refused(&made, -EBADMSG, "cyclic");

	make_sound(&made);
	onnx_model_node(&made, "Add", "p p", "p");
	expect_refused(&made, -EBADMSG, "cyclic");
}

TEST(test_load__unsorted)
{
	struct onnx_model made;
	struct rbk_onnx *model;
	struct rbk_error error;

	onnx_model_init(&made, 13);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 2, two_by_four);
	onnx_model_node(&made, "Relu", "b", "y");
	onnx_model_node(&made, "Relu", "a", "b");
	onnx_model_node(&made, "Relu", "x", "a");
	onnx_model_output(&made, "y");
	assert_int_equal(load(&made, NULL, &model, &error), 0);
	assert_fields(*model, (nodes[0].index, 2), (nodes[1].index, 1), (nodes[2].index, 0));
	rbk_onnx_free(model);
	onnx_model_deinit(&made);
}

TEST(test_load__names)
{
	struct onnx_model made;

	make_sound(&made);
	onnx_model_node(&made, "Relu", "x", "s");
	expect_refused(&made, -EBADMSG, "\"s\"");
	make_sound(&made);
	onnx_model_node(&made, "Relu", "x", "x");
	expect_refused(&made, -EBADMSG, "\"x\"");
	make_sound(&made);
	onnx_model_node(&made, "Relu", "x", "b");
	expect_refused(&made, -EBADMSG, "\"b\"");
	make_sound(&made);
	onnx_model_input(&made, "x", RBK_ONNX_F32, 1, four);
	expect_refused(&made, -EBADMSG, "\"x\"");
	make_sound(&made);
	onnx_model_ints(&made, "b", 1, four);
	expect_refused(&made, -EBADMSG, "\"b\"");
	make_sound(&made);
	onnx_model_node(&made, "Relu", "nowhere", "z");
	expect_refused(&made, -EBADMSG, "\"nowhere\"");
	make_sound(&made);
	onnx_model_output(&made, "nowhere");
	expect_refused(&made, -EBADMSG, "\"nowhere\"");
	make_sound(&made);
	onnx_model_output(&made, "y");
	expect_refused(&made, -EBADMSG, "two outputs have the name \"y\"");
	make_sound(&made);
	onnx_model_input(&made, "", RBK_ONNX_F32, 1, four);
	expect_refused(&made, -EBADMSG, "no name");
	make_sound(&made);
	made.graph.node[0]->op_type = NULL;
	expect_refused(&made, -EBADMSG, "no operator");
	make_sound(&made);
	onnx_model_attr_int(&made, made.graph.node[0], "a", 1);
	onnx_model_attr_int(&made, made.graph.node[0], "b", 1);
	onnx_model_attr_int(&made, made.graph.node[0], "a", 1);
	expect_refused(&made, -EBADMSG, "\"a\" twice");
}

TEST(test_load__versions)
{
	struct onnx_model made;

	make_sound(&made);
	made.proto.ir_version = 2;
	expect_refused(&made, -EOPNOTSUPP, "IR version");
	make_sound(&made);
	made.opset.version = 26;
	expect_refused(&made, -EOPNOTSUPP, "opset is 26, expected 1 to 25");
	make_sound(&made);
	made.opset.version = -1;
	expect_refused(&made, -EBADMSG, "opset is -1, expected 1 to 25");
	make_sound(&made);
	made.opset.version = 0;
	expect_refused(&made, -EBADMSG, "opset is 0, expected 1 to 25");
	make_sound(&made);
	made.opset.domain = (char *)"com.example";
	made.opset.version = -5;
	expect_refused(&made, -EBADMSG, "of domain \"com.example\" is -5");
	make_sound(&made);
	made.opset.domain = (char *)"com.example";
	expect_refused(&made, -EBADMSG, "does not say which opset");
	make_sound(&made);
	made.proto.graph = NULL;
	expect_refused(&made, -EBADMSG, "no graph");
	make_sound(&made);
	made.graph.n_output = 0;
	expect_refused(&made, -EBADMSG, "no output");
}

/* Lengths that exceed the data. */
TEST(test_load__hostile_tensors)
{
	static const int64_t huge[] = {5, 1 << 20, 256}, negative[] = {-4}, many[17] = {1};
	static const int64_t beyond[] = {INT32_MAX, INT32_MAX, 3}, empty[] = {0, INT32_MAX};
	static const float b[4];
	struct onnx_model made;
	struct rbk_onnx *model;
	struct rbk_error error;

	make_sound(&made);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 3, huge, b, sizeof(b));
	expect_refused(&made, -EBADMSG, "\"w\" has 16 bytes");
	make_sound(&made);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 1, negative, b, sizeof(b));
	expect_refused(&made, -EBADMSG, "is -4");
	make_sound(&made);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 3, beyond, b, sizeof(b));
	expect_refused(&made, -EFBIG, "64 GiB");
	make_sound(&made);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 2, (int64_t[]){0, 1ll << 62}, b, 0);
	expect_refused(&made, -EFBIG, "dimension 1 is 4611686018427387904");
	make_sound(&made);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 17, many, b, 4);
	expect_refused(&made, -EOPNOTSUPP, "17 dimensions");
	make_sound(&made);
	onnx_model_constant(&made, "w", 8, 1, four, b, 4);
	expect_refused(&made, -EOPNOTSUPP, "of element type string (8)");
	make_sound(&made);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 1, four, NULL, 0);
	expect_refused(&made, -EBADMSG, "has 0 elements");
	make_sound(&made);
	onnx_model_input(&made, "b", RBK_ONNX_F32, 1, (int64_t[]){5});
	expect_refused(&made, -EBADMSG, "different type or shape");
	make_sound(&made);
	onnx_model_input(&made, "i", RBK_ONNX_F32, 1, (int64_t[]){-5});
	expect_refused(&made, -EBADMSG, "is -5");
	make_sound(&made);
	onnx_model_input(&made, "i", RBK_ONNX_F32, 5000, (int64_t[5000]){1});
	expect_refused(&made, -EOPNOTSUPP, "5000 dimensions");
	make_sound(&made);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 5000, (int64_t[5000]){0}, b, 0);
	expect_refused(&made, -EOPNOTSUPP, "5000 dimensions");

	make_sound(&made);
	onnx_model_constant(&made, "w", RBK_ONNX_F32, 2, empty, b, 0);
	assert_int_equal(load(&made, NULL, &model, &error), 0);
	rbk_onnx_free(model);
	onnx_model_deinit(&made);
}

/* Wrap the bytes at @bytes in field @field of an enclosing message. */
static size_t wrap(uint8_t *bytes, size_t n, uint8_t field)
{
	memmove(bytes + 6, bytes, n);
	bytes[0] = (uint8_t)(field << 3 | 2);
	for (unsigned int i = 0; i < 5; i++)
		bytes[1 + i] = (uint8_t)((n >> 7 * i & 0x7f) | (i < 4 ? 0x80 : 0));
	return n + 6;
}

/* Sequences of sequences of ...: unpacking recurses as deep. */
TEST(test_scan__nested)
{
	size_t n = 0, n_max = 100000;
	uint8_t *bytes = malloc(n_max);
	struct rbk_onnx *model;
	struct rbk_error error;
	uint64_t at;

	/* Built from the inside out: 4 (sequence_type), 1 (elem_type). */
	for (unsigned int depth = 0; depth < 4000; depth++) {
		n = wrap(bytes, n, depth & 1 ? 4 : 1);
		assert_true(n < n_max - 6);
	}
	assert_non_null(
		strstr(scan_message(&onnx__type_proto__descriptor, bytes, n, &at), "too deeply"));
	assert_int_equal(rbk_onnx_load_bytes(bytes, n, NULL, &model, &error), -EBADMSG);
	free(bytes);
}

/*
 * Nodes with graphs with nodes with graphs: field 7 (graph), then 1 (node), 5 (attribute), 6 (its
 * graph).
 */
TEST(test_load__nested_graphs)
{
	uint8_t *bytes = malloc(100000);
	struct rbk_onnx *model;
	struct rbk_error error;
	size_t n = 0;

	for (unsigned int depth = 0; depth < 3000; depth++) {
		n = wrap(bytes, n, 6);
		n = wrap(bytes, n, 5);
		n = wrap(bytes, n, 1);
	}
	n = wrap(bytes, n, 7);
	assert_int_equal(rbk_onnx_load_bytes(bytes, n, NULL, &model, &error), -EBADMSG);
	assert_non_null(strstr(error.text, "too deeply"));
	free(bytes);
}

/* Write a node that reads "nFROM" and writes "nTO": 1 (input), 2 (output), 4 (op_type). */
static size_t write_relu(uint8_t *at, unsigned int from, unsigned int to)
{
	char name[16];
	size_t n = 2;

	at[0] = 1 << 3 | 2;
	for (unsigned int i = 0; i < 2; i++) {
		at[n++] = (uint8_t)((i + 1) << 3 | 2);
		at[n++] = (uint8_t)snprintf(name, sizeof(name), "n%u", i ? to : from);
		memcpy(at + n, name, at[n - 1]);
		n += at[n - 1];
	}
	at[n++] = 4 << 3 | 2;
	at[n++] = 4;
	memcpy(at + n, "Relu", 4);
	n += 4;
	at[1] = (uint8_t)(n - 2);
	return n;
}

/* A chain of 60,000 nodes, the last one first. Sorting by recursion would overflow the stack. */
TEST(test_load__long_row)
{
	const unsigned int n_nodes = 60000;
	uint8_t *bytes = malloc(n_nodes * 32 + 4096), *head;
	struct rbk_onnx *model;
	struct rbk_error error;
	struct onnx_model made;
	size_t n = 0, n_head;

	for (unsigned int i = n_nodes; i-- > 0;)
		n += write_relu(bytes + n, i, i + 1);
	onnx_model_init(&made, 13);
	onnx_model_input(&made, "n0", RBK_ONNX_F32, 1, four);
	onnx_model_output(&made, "n60000");
	/* If a message field occurs several times, their repeated fields are concatenated. */
	n_head = onnx__graph_proto__get_packed_size(&made.graph);
	head = malloc(n_head);
	onnx__graph_proto__pack(&made.graph, head);
	memcpy(bytes + n, head, n_head);
	n = wrap(bytes, n + n_head, 7);
	made.proto.graph = NULL;
	free(head);
	n_head = onnx__model_proto__get_packed_size(&made.proto);
	onnx__model_proto__pack(&made.proto, bytes + n);
	if (rbk_onnx_load_bytes(bytes, n + n_head, NULL, &model, &error) ||
	    rbk_onnx_compile(model, NULL, &error))
		fail_msg("%s", error.text);
	assert_int_equal(rbk_onnx_n_steps(model), n_nodes);
	rbk_onnx_free(model);
	onnx_model_deinit(&made);
	free(bytes);
}

TEST(test_scan__broken)
{
	static const struct {
		uint8_t bytes[8];
		size_t n;
		const char *words;
	} cases[] = {
		{{0x08}, 1, "number is cut off"},
		{{0x08, 0x80, 0x80}, 3, "number is cut off"},
		{{0x3a, 0x05, 0x00}, 3, "is cut off"},
		{{0x3a}, 1, "length is cut off"},
		{{0x3a, 0x00, 0x3a, 0x00}, 4, "twice"},
		{{0x38, 0x01}, 2, "has the wrong type"},
		{{0x0b, 0x0c}, 2, "has the wrong type"},
		{{0xfb, 0x01}, 2, "no valid type"},
		{{0x00, 0x00}, 2, "no valid number"},
		{{0x09, 1, 2}, 3, "has the wrong type"},
	};
	uint64_t at;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *trouble = scan_message(&onnx__model_proto__descriptor, cases[i].bytes,
						   cases[i].n, &at);

		assert_non_null(trouble);
		if (!strstr(trouble, cases[i].words))
			fail_msg("case %zu: expected \"%s\", got \"%s\"", i, cases[i].words,
				 trouble);
	}
	/* An unknown field is skipped. */
	assert_null(scan_message(&onnx__model_proto__descriptor, "\xaa\x06\x02hi", 5, &at));
}

/* Broken models, and files of other formats, whose bytes resemble another kind of file. */
TEST(test_load__kinds_alike)
{
#define FILE_OF(bytes, says, denies)                   \
	{                                              \
		bytes, sizeof(bytes) - 1, says, denies \
	}
	static const struct {
		const char *bytes;
		size_t n_bytes;
		const char *says, *denies;
	} files[] = {
		/*
		 * Models with a producer name that looks like another format's signature; the graph
		 * is cut off.
		 */
		FILE_OF("\x08\x08\x12\x04TFL3\x3a\x20\x0a\x02", "model that is cut off", "Lite"),
		FILE_OF("\x08\x08\x12\x08ORTMLIKE\x3a\x20\x0a\x02", "model that is cut off",
			"Runtime"),
		FILE_OF("\x08\x08\x12\x08tomaWEBP\x3a\x20\x0a\x02", "model that is cut off",
			"picture"),
		FILE_OF("\x08\x08\x12\x08toma{\"a\"\x3a\x20\x0a\x02", "model that is cut off",
			"weights alone"),
		FILE_OF("\x08\x08\x3a\x20\x0a\x02", "at least 30 bytes missing", NULL),
		/* A cut-off TensorFlow Lite file is still recognised as one. */
		FILE_OF("\x20\0\0\0TFL3\0\0", "TensorFlow Lite's", "cut off, with"),
		/* Impossible lengths, and messages without a version. */
		FILE_OF("\x08\x08\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x0a",
			"not a valid ModelProto", "missing"),
		FILE_OF("\x08\x08\x3a\x80\x80\x80\x80\x08\x0a", "not a valid ModelProto",
			"missing"),
		FILE_OF("\x12\x7f\x0a", "not a valid ModelProto", "missing"),
		FILE_OF("\x0b\x0b\x0b\x0b\x0b\x0b\x0b\x0b", "not a valid ModelProto", "text"),
		FILE_OF("  \n\n \t\r\n", "not a valid ModelProto", "text"),
		FILE_OF("\f\n; form feeds\n", "it is text", NULL),
	};
#undef FILE_OF
	struct rbk_error error;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		refuse_bytes(files[i].bytes, files[i].n_bytes, &error);
		if (!strstr(error.text, files[i].says) ||
		    (files[i].denies && strstr(error.text, files[i].denies)))
			fail_msg("file %zu: \"%s\"", i, error.text);
	}
}

/* A file of empty nodes alone needs a hundred times its size in memory. */
TEST(test_load__bomb)
{
	const size_t n_nodes = 4u << 20, n = 2 * n_nodes;
	uint8_t *bytes = malloc(n + 6);
	struct rbk_onnx *model;
	struct rbk_error error;

	bytes[0] = 0x3a;
	for (unsigned int i = 0; i < 5; i++)
		bytes[1 + i] = (uint8_t)((n >> 7 * i & 0x7f) | (i < 4 ? 0x80 : 0));
	for (size_t i = 0; i < n_nodes; i++) {
		bytes[6 + 2 * i] = 0x0a;
		bytes[7 + 2 * i] = 0;
	}
	assert_int_equal(rbk_onnx_load_bytes(bytes, n + 6, NULL, &model, &error), -EFBIG);
	free(bytes);
}

/* ---- Sparse tensors ---- */

/* Make a sound model with a sparse initializer w of [2,3], with value 1 at index 1 and 2 at 5. */
static void make_sparse(struct onnx_model *model, Onnx__SparseTensorProto *sparse,
			unsigned int rank, const int64_t *indices)
{
	static int64_t dims[] = {2, 3};
	const int64_t index_dims[] = {2, 2};
	static Onnx__SparseTensorProto *list[1];

	make_sound(model);
	onnx__sparse_tensor_proto__init(sparse);
	sparse->values =
		onnx_model_tensor(model, "w", RBK_ONNX_F32, 1, (int64_t[]){2}, (float[]){1, 2}, 8);
	sparse->indices =
		onnx_model_tensor(model, "", RBK_ONNX_I64, rank, index_dims, indices, rank * 16);
	sparse->n_dims = 2;
	sparse->dims = dims;
	list[0] = sparse;
	model->graph.n_sparse_initializer = 1;
	model->graph.sparse_initializer = list;
}

TEST(test_sparse__sound)
{
	static const int64_t places[][4] = {{1, 5}, {0, 1, 1, 2}};
	static const float expected[] = {0, 1, 0, 0, 0, 2};
	Onnx__SparseTensorProto sparse;
	struct onnx_model made;
	struct rbk_onnx *model;
	struct rbk_error error;

	for (unsigned int rank = 1; rank <= 2; rank++) {
		const struct constant *w = NULL;

		make_sparse(&made, &sparse, rank, places[rank - 1]);
		assert_int_equal(load(&made, NULL, &model, &error), 0);
		for (uint32_t i = 0; i < model->n_values; i++)
			if (!strcmp(model->values[i].name, "w"))
				w = model->values[i].initializer;
		assert_non_null(w);
		assert_fields(*w, (rank, 2), (dims[1], 3), (n_bytes, sizeof(expected)));
		assert_memory_equal(w->data, expected, sizeof(expected));
		rbk_onnx_free(model);
		onnx_model_deinit(&made);
	}
}

TEST(test_sparse__hostile)
{
	static const struct {
		unsigned int rank;
		int64_t indices[4];
		const char *words;
	} cases[] = {
		{1, {1, 6}, "\"w\": index 1 is outside of its shape"},
		{1, {-1, 5}, "index 0 is outside"},
		{1, {INT64_MIN, INT64_MAX}, "index 0 is outside"},
		{1, {1, 1}, "index 1 is not larger than the index before it"},
		{1, {5, 1}, "index 1 is not larger than the index before it"},
		{2, {0, 3, 1, 2}, "index 0 is outside"},
		{2, {0, 1, 2, 0}, "index 1 is outside"},
		{2, {0, -1, 1, 2}, "index 0 is outside"},
		{2, {1, 2, 1, 2}, "index 1 is not larger"},
		{2, {1, 0, 0, 2}, "index 1 is not larger"},
	};
	Onnx__SparseTensorProto sparse;
	struct onnx_model made;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		make_sparse(&made, &sparse, cases[i].rank, cases[i].indices);
		expect_refused(&made, -EBADMSG, cases[i].words);
	}
	make_sparse(&made, &sparse, 2, cases[0].indices);
	sparse.indices->dims[1] = 1;
	sparse.indices->raw_data.len = 16;
	expect_refused(&made, -EBADMSG, "its indices are not an int64, or 2 of them, for each");
	make_sparse(&made, &sparse, 1, cases[0].indices);
	sparse.dims = (int64_t[]){1 << 20, 1 << 12};
	expect_refused(&made, -EFBIG, "\"w\" needs too much memory");
	make_sparse(&made, &sparse, 1, cases[0].indices);
	sparse.dims = (int64_t[]){INT32_MAX, INT32_MAX};
	expect_refused(&made, -EFBIG, "more than 64 GiB");
	make_sparse(&made, &sparse, 1, cases[0].indices);
	sparse.indices = NULL;
	expect_refused(&made, -EBADMSG, "has no values, or no indices");
	make_sparse(&made, &sparse, 1, cases[0].indices);
	sparse.values = NULL;
	expect_refused(&made, -EBADMSG, "has no name");
	make_sparse(&made, &sparse, 1, cases[0].indices);
	onnx_model_ints(&made, "w", 1, four);
	expect_refused(&made, -EBADMSG, "two values have the name \"w\"");
}

/* ---- Encodings ---- */

static void expect_tensor(Onnx__TensorProto *proto, const void *data, uint64_t n_bytes)
{
	size_t n = onnx__tensor_proto__get_packed_size(proto);
	uint8_t *bytes = malloc(n);
	struct rbk_onnx_tensor tensor;
	struct rbk_error error;

	onnx__tensor_proto__pack(proto, bytes);
	assert_int_equal(rbk_onnx_tensor_load_bytes(bytes, n, &tensor, &error), 0);
	free(bytes);
	assert_fields(tensor, (dtype, proto->data_type), (n_bytes, n_bytes));
	assert_memory_equal(tensor.data, data, n_bytes);
	assert_string_equal(tensor.name, "t");
	rbk_onnx_tensor_free(&tensor);
	rbk_onnx_tensor_free(&tensor);
}

TEST(test_tensor__encodings)
{
	static float floats[] = {1, -2.5f};
	static double doubles[] = {1, -2.5};
	static int32_t ints[] = {1, -2};
	static int32_t halves[] = {0x3c00, 0xc100};
	static int64_t longs[] = {1, INT64_MIN};
	static uint64_t unsigneds[] = {1, UINT32_MAX};
	static const uint32_t u32[] = {1, UINT32_MAX};
	static const uint16_t u16[] = {0x3c00, 0xc100};
	static const int8_t i8[] = {1, -2};
	static const uint8_t bools[] = {1, 1};
	struct onnx_model made;
	const int64_t dims[] = {2};
	Onnx__TensorProto *t;

	onnx_model_init(&made, 13);
	t = onnx_model_tensor(&made, "t", RBK_ONNX_F32, 1, dims, NULL, 0);
	t->n_float_data = 2;
	t->float_data = floats;
	expect_tensor(t, floats, sizeof(floats));
	t = onnx_model_tensor(&made, "t", RBK_ONNX_F64, 1, dims, NULL, 0);
	t->n_double_data = 2;
	t->double_data = doubles;
	expect_tensor(t, doubles, sizeof(doubles));
	t = onnx_model_tensor(&made, "t", RBK_ONNX_I64, 1, dims, NULL, 0);
	t->n_int64_data = 2;
	t->int64_data = longs;
	expect_tensor(t, longs, sizeof(longs));
	t = onnx_model_tensor(&made, "t", RBK_ONNX_U64, 1, dims, NULL, 0);
	t->n_uint64_data = 2;
	t->uint64_data = unsigneds;
	expect_tensor(t, unsigneds, sizeof(unsigneds));
	t->data_type = RBK_ONNX_U32;
	expect_tensor(t, u32, sizeof(u32));
	t = onnx_model_tensor(&made, "t", RBK_ONNX_I32, 1, dims, NULL, 0);
	t->n_int32_data = 2;
	t->int32_data = ints;
	expect_tensor(t, ints, sizeof(ints));
	t->data_type = RBK_ONNX_I8;
	expect_tensor(t, i8, sizeof(i8));
	t->data_type = RBK_ONNX_BOOL;
	expect_tensor(t, bools, sizeof(bools));
	t->int32_data = halves;
	t->data_type = RBK_ONNX_F16;
	expect_tensor(t, u16, sizeof(u16));
	t->data_type = RBK_ONNX_U16;
	expect_tensor(t, u16, sizeof(u16));
	/* Two elements per byte: three elements need two bytes. */
	t = onnx_model_tensor(&made, "t", RBK_ONNX_I4, 1, (int64_t[]){3}, "\x21\x03", 2);
	expect_tensor(t, "\x21\x03", 2);
	t = onnx_model_tensor(&made, "t", RBK_ONNX_BOOL, 1, dims, "\x00\xff", 2);
	expect_tensor(t, "\x00\x01", 2);
	t = onnx_model_tensor(&made, "t", RBK_ONNX_F32, 0, NULL, floats, 4);
	expect_tensor(t, floats, 4);
	onnx_model_deinit(&made);
}

TEST(test_dtypes)
{
	assert_string_equal(rbk_onnx_dtype_name(RBK_ONNX_F16), "float16");
	assert_string_equal(rbk_onnx_dtype_name(8), "string");
	assert_int_equal(rbk_onnx_dtype_bytes(RBK_ONNX_F32, 3), 12);
	assert_int_equal(rbk_onnx_dtype_bytes(RBK_ONNX_U4, 3), 2);
	assert_int_equal(rbk_onnx_dtype_bytes(8, 3), 0);
	assert_string_equal(rbk_onnx_dtype_name(0), "unknown");
}

/* ---- External data ---- */

struct folder {
	char path[64];
};

static int make_folder(void **state)
{
	static struct folder folder;
	char path[128];
	int fd;

	strcpy(folder.path, "/tmp/ringbroker-onnx-XXXXXX");
	if (!mkdtemp(folder.path))
		return -1;
	snprintf(path, sizeof(path), "%s/weights", folder.path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	for (uint32_t i = 0; i < 16; i++)
		if (write(fd, &i, sizeof(i)) != sizeof(i))
			return -1;
	close(fd);
	snprintf(path, sizeof(path), "%s/link", folder.path);
	if (symlink("/etc/passwd", path))
		return -1;
	snprintf(path, sizeof(path), "%s/up", folder.path);
	if (symlink("..", path))
		return -1;
	snprintf(path, sizeof(path), "%s/fifo", folder.path);
	if (mkfifo(path, 0600))
		return -1;
	*state = &folder;
	return 0;
}

static int remove_folder(void **state)
{
	static const char *const names[] = {"/weights", "/link", "/up", "/fifo", ""};
	struct folder *folder = *state;
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s%s", folder->path, names[i]);
		if (remove(path))
			return -1;
	}
	return 0;
}

static void make_external(struct onnx_model *made, const char *location, const char *offset,
			  const char *length)
{
	static Onnx__StringStringEntryProto entries[3], *list[3];
	static const char *const keys[] = {"location", "offset", "length"};
	const char *const values[] = {location, offset, length};
	Onnx__TensorProto *tensor;

	make_sound(made);
	tensor = onnx_model_constant(made, "w", RBK_ONNX_U32, 1, four, NULL, 0);
	tensor->has_data_location = 1;
	tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
	tensor->external_data = list;
	for (unsigned int i = 0; i < 3; i++) {
		if (!values[i])
			continue;
		onnx__string_string_entry_proto__init(&entries[i]);
		entries[i].key = (char *)keys[i];
		entries[i].value = (char *)values[i];
		list[tensor->n_external_data++] = &entries[i];
	}
}

TEST(test_external__sound, make_folder, remove_folder)
{
	static const uint32_t expected[] = {2, 3, 4, 5};
	struct folder *folder = *state;
	const struct constant *constant;
	struct onnx_model made;
	struct rbk_onnx *model;
	struct rbk_error error;

	make_external(&made, "./weights", "8", "16");
	assert_int_equal(load(&made, folder->path, &model, &error), 0);
	constant = NULL;
	for (uint32_t i = 0; i < model->n_values; i++)
		if (!strcmp(model->values[i].name, "w"))
			constant = model->values[i].initializer;
	assert_non_null(constant);
	assert_memory_equal(constant->data, expected, sizeof(expected));
	rbk_onnx_free(model);
	onnx_model_deinit(&made);

	/*
	 * The file determines the offset of the data. Elements are aligned in memory at any offset.
	 */
	make_external(&made, "weights", "3", NULL);
	assert_int_equal(load(&made, folder->path, &model, &error), 0);
	rbk_onnx_free(model);
	onnx_model_deinit(&made);
}

TEST(test_external__outside, make_folder, remove_folder)
{
	static const struct {
		const char *location, *offset, *length, *words;
		int r;
	} cases[] = {
		{"/etc/passwd", NULL, NULL, "plain name", -EBADMSG},
		{"../weights", NULL, NULL, "plain name", -EBADMSG},
		{"a/../../weights", NULL, NULL, "\"a/../../weights\"", -ENOENT},
		{"./../weights", NULL, NULL, "plain name", -EBADMSG},
		{"link", NULL, NULL, "plain name", -EBADMSG},
		{"up/weights", NULL, NULL, "external data", -ENOTDIR},
		{"fifo", NULL, NULL, "regular file", -EBADMSG},
		{".", NULL, NULL, "regular file", -EBADMSG},
		{"", NULL, NULL, "plain name", -EBADMSG},
		{"weights/", NULL, NULL, "", -ENOTDIR},
		{"missing", NULL, NULL, "\"missing\"", -ENOENT},
		{NULL, NULL, NULL, "the file is not named", -EBADMSG},
		{"weights", "52", NULL, "end beyond", -EBADMSG},
		{"weights", "18446744073709551615", NULL, "end beyond", -EBADMSG},
		{"weights", "18446744073709551616", NULL, "not a number", -EBADMSG},
		{"weights", "-4", NULL, "not a number", -EBADMSG},
		{"weights", "0x4", NULL, "not a number", -EBADMSG},
		{"weights", "0", "15", "require 16", -EBADMSG},
	};
	struct folder *folder = *state;
	struct onnx_model made;
	struct rbk_onnx *model;
	struct rbk_error error;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int r;

		make_external(&made, cases[i].location, cases[i].offset, cases[i].length);
		r = load(&made, folder->path, &model, &error);
		if (r != cases[i].r || !strstr(error.text, cases[i].words))
			fail_msg("case %zu: expected %d \"%s\", got %d \"%s\"", i, cases[i].r,
				 cases[i].words, r, error.text);
		onnx_model_deinit(&made);
	}
	make_external(&made, "weights", NULL, NULL);
	assert_int_equal(load(&made, NULL, &model, &error), -EBADMSG);
	onnx_model_deinit(&made);
}

/* ---- Memory ---- */

TEST(test_load__allocations_fail)
{
	struct onnx_model made;
	struct rbk_onnx *model;
	struct rbk_error error;
	const uint8_t *bytes;
	size_t n_bytes;
	int r;

	make_sound(&made);
	bytes = onnx_model_pack(&made, &n_bytes);
	for (unsigned int n = 1;; n++) {
		fail_alloc_at(n);
		r = rbk_onnx_load_bytes(bytes, n_bytes, "/tmp", &model, &error);
		if (!r)
			r = rbk_onnx_compile(model, NULL, &error) == -ENOMEM ? -ENOMEM : 0;
		else
			model = NULL;
		if (!fail_alloc_stop())
			break;
		rbk_onnx_free(model);
		assert_int_equal(r, -ENOMEM);
	}
	assert_int_equal(r, 0);
	rbk_onnx_free(model);
	onnx_model_deinit(&made);
}
