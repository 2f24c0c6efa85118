/* SPDX-License-Identifier: MIT */
/* Profile files: contents, every complaint, writing and reading again, hostile files */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate/profile-file.h"
#include "fail-alloc.h"
#include "support/test.h"
#include "util/checked.h"
#include "util/cleanup.h"

#define LEAST "[device]\nname = x\n[rates]\nothers.flops = 1\nothers.bytes = 1\n"

static void parse_right(const char *text, struct place_profile *ret)
{
	char *errors = NULL;

	if (place_profile_parse("f", text, strlen(text), ret, &errors))
		fail_msg("%s", errors);
	assert_null(place_profile_refusal(ret));
}

TEST(test_parse__everything)
{
	struct place_profile p;

	parse_right("# A card.\r\n"
		    "[device]\n"
		    "  name = AMD Radeon RX 580 Series ; a comment\n"
		    "source = its data sheet\n"
		    "servers = 8\n"
		    "servers-per-task=4\n"
		    "share-min = 20us\n"
		    "task = 12.5 us\n"
		    "node = 1500ns\n"
		    "memory = 8GiB\n"
		    "active-watts = 150 W\n"
		    "\n"
		    "[link]\n"
		    "up = 6.2 GB/s\n"
		    "down = 6000 MB/s\n"
		    "latency = 0.008 ms\n"
		    "[rates]\n"
		    "matmul.flops = 4KiB: 20, 2 MiB:920,128MiB:5120 GFLOP/s\n"
		    "others.flops = 1.5 TFLOP/s\n"
		    "softmax.bytes = 1MiB:10\n"
		    "others.bytes = 180\n",
		    &p);
	assert_string_equal(p.name, "AMD Radeon RX 580 Series");
	assert_string_equal(p.source, "its data sheet");
	assert_fields(p, (n_servers, 8), (n_servers_per_task, 4));
	assert_float_equal(p.share_min_ns, 20000, 0);
	assert_float_equal(p.task_ns, 12500, 0);
	assert_float_equal(p.node_ns, 1500, 0);
	assert_int_equal(p.memory_bytes, 8ull << 30);
	assert_float_equal(p.active_watts, 150, 0);
	assert_float_equal(p.up_bytes_per_ns, 6.2f, 0);
	assert_float_equal(p.down_bytes_per_ns, 6, 1e-6);
	assert_float_equal(p.link_ns, 8000, 0);
	/* 4 KiB to 2 MiB spans three classes, 2 MiB to 128 MiB two. */
	const float matmul[PLACE_SIZE_CLASSES] = {20, 320, 620, 920, 3020, 5120};

	for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++) {
		assert_float_equal(p.rates[OP_FAMILY_MATMUL][i].flops_per_ns, matmul[i], 1e-3);
		assert_float_equal(p.rates[OP_FAMILY_MATMUL][i].bytes_per_ns, 180, 0);
		assert_float_equal(p.rates[OP_FAMILY_GEMM][i].flops_per_ns, 1500, 0);
		assert_float_equal(p.rates[OP_FAMILY_SOFTMAX][i].bytes_per_ns, 10, 0);
	}
}

/* Defaults of keys that are not given. */
TEST(test_parse__least)
{
	struct place_profile p;

	parse_right(LEAST, &p);
	assert_fields(p, (n_servers, 1), (n_servers_per_task, 1));
	assert_float_equal(p.task_ns, 0, 0);
	assert_float_equal(p.up_bytes_per_ns, 0, 0);
	assert_int_equal(p.memory_bytes, 0);
	assert_string_equal(p.source, "");
	parse_right("\xef\xbb\xbf" LEAST, &p);
}

/* Points between classes are interpolated to the classes. */
TEST(test_parse__points_between)
{
	struct place_profile p;

	parse_right("[device]\nname = x\n[rates]\nothers.bytes = 1\n"
		    "others.flops = 1KiB:1, 16KiB:5, 1MiB:11\n",
		    &p);
	const float rates[PLACE_SIZE_CLASSES] = {3, 6, 9, 11, 11, 11};

	for (unsigned int i = 0; i < PLACE_SIZE_CLASSES; i++)
		assert_float_equal(p.rates[OP_FAMILY_POOLING][i].flops_per_ns, rates[i], 1e-5);
}

#define DEVICE(line) "[device]\nname = x\n" line "\n[rates]\nothers.flops = 1\nothers.bytes = 1\n"
#define LINK(lines)  LEAST "[link]\n" lines
#define RATES(line)  LEAST line "\n"

static const struct {
	const char *text;
	const char *sentence; /* the first sentence of the errors */
} wrong[] = {
	{"", "f: name: the key is missing in [device]; it is required\n"},
	{"[rates]\nothers.flops = 1\nothers.bytes = 1\n",
	 "f: name: the key is missing in [device]; it is required\n"},
	{"[device]\nname = x\n",
	 "f: matmul.flops: the key is missing in [rates]; it is required, or others.flops\n"},
	{"[device]\nname = x\n[rates]\nothers.flops = 1\n",
	 "f: matmul.bytes: the key is missing in [rates]; it is required, or others.bytes\n"},
	{"name = x\n",
	 "f:1: name: the key is in no section; [device], [link] or [rates] must come first\n"},
	{LEAST "others.flops = 2",
	 "f:6: the last line has no line end; the file may be truncated\n"},
	{LEAST "oth", "f:6: the last line has no line end; the file may be truncated\n"},
	{LEAST "[device]\n", "f:6: section [device] is in line 1 already; give it once\n"},
	{LEAST "[tenant a]\n",
	 "f:6: '[tenant a]' is not a section; expected [device], [link] or [rates]\n"},
	{LEAST "[rates\n",
	 "f:6: '[rates' is not a section; expected [device], [link] or [rates]\n"},
	{LEAST "[rates] x\n",
	 "f:6: '[rates] x' is not a section; expected [device], [link] or [rates]\n"},
	{LEAST "others\n",
	 "f:6: the line is neither a [section] nor KEY = VALUE nor a # comment\n"},
	{LEAST "a: b\n", "f:6: the line is neither a [section] nor KEY = VALUE nor a # comment\n"},
	{LEAST "a: b = c\n",
	 "f:6: the line is neither a [section] nor KEY = VALUE nor a # comment\n"},
	{LEAST "= 3\n", "f:6: the line is neither a [section] nor KEY = VALUE nor a # comment\n"},
	{LEAST "# \x01\n",
	 "f:6: the line has a control character (0x01); only text and tabs are allowed\n"},
	{DEVICE("color = red"),
	 "f:3: color: [device] has no such key; ringbroker-profile(5) lists the keys\n"},
	{DEVICE("up = 3"),
	 "f:3: up: [device] has no such key; ringbroker-profile(5) lists the keys\n"},
	{DEVICE("name = y"), "f:3: name: the key is in line 2 already; give it once\n"},
	{DEVICE("source ="), "f:3: source: the text has 0 bytes; expected 1 to 95\n"},
	{DEVICE("servers = 0"), "f:3: servers: '0' is not a number from 1 to 1024\n"},
	{DEVICE("servers = -1"), "f:3: servers: '-1' is not a number from 1 to 1024\n"},
	{DEVICE("servers = 1.5"), "f:3: servers: '1.5' is not a number from 1 to 1024\n"},
	{DEVICE("servers = 1025"), "f:3: servers: '1025' is not a number from 1 to 1024\n"},
	{DEVICE("servers-per-task = 2"),
	 "f:3: servers-per-task: the value is more than servers, 1; at most that is allowed\n"},
	{DEVICE("task = 12"),
	 "f:3: task: '12' is not a time; expected 0ns to 1s, with a unit of ns, us, ms or s, such "
	 "as 12us\n"},
	{DEVICE("task = -1us"),
	 "f:3: task: '-1us' is not a time; expected 0ns to 1s, with a unit of ns, us, ms or s, "
	 "such as 12us\n"},
	{DEVICE("task = nan"),
	 "f:3: task: 'nan' is not a time; expected 0ns to 1s, with a unit of ns, us, ms or s, such "
	 "as 12us\n"},
	{DEVICE("node = 2s"),
	 "f:3: node: '2s' is not a time; expected 0ns to 1s, with a unit of ns, us, ms or s, such "
	 "as 12us\n"},
	{DEVICE("node = 1e999ns"),
	 "f:3: node: '1e999ns' is not a time; expected 0ns to 1s, with a unit of ns, us, ms or s, "
	 "such as 12us\n"},
	{DEVICE("memory = 8XB"),
	 "f:3: memory: '8XB' is not a size; expected bytes, KiB, MiB, GiB or TiB, such as 8GiB; 0 "
	 "means that the device uses the host's memory\n"},
	{DEVICE("memory = -1"),
	 "f:3: memory: '-1' is not a size; expected bytes, KiB, MiB, GiB or TiB, such as 8GiB; 0 "
	 "means that the device uses the host's memory\n"},
	{DEVICE("memory = 900000TiB"),
	 "f:3: memory: '900000TiB' is not a size; expected bytes, KiB, MiB, GiB or TiB, such as "
	 "8GiB; 0 means that the device uses the host's memory\n"},
	{DEVICE("active-watts = inf"),
	 "f:3: active-watts: 'inf' is not a power; expected watts from 0 (unknown) to 1e+06\n"},
	{LINK("up = -6 GB/s\ndown = 6\n"),
	 "f:7: up: '-6 GB/s' is not a rate; expected a number above 0 of MB/s, GB/s (the default "
	 "unit) or TB/s, such as 6.2 GB/s\n"},
	{LINK("up = 0\ndown = 6\n"),
	 "f:7: up: '0' is not a rate; expected a number above 0 of MB/s, GB/s (the default unit) "
	 "or TB/s, such as 6.2 GB/s\n"},
	{LINK("up = 3 GiB/s\ndown = 6\n"),
	 "f:7: up: '3 GiB/s' is not a rate; expected a number above 0 of MB/s, GB/s (the default "
	 "unit) or TB/s, such as 6.2 GB/s\n"},
	{LINK("up = 6\n"),
	 "f:6: down: the key is missing in [link]; give both up and down, or omit [link]\n"},
	{LINK("down = 6\n"),
	 "f:6: up: the key is missing in [link]; give both up and down, or omit [link]\n"},
	{RATES("matmul = 3"),
	 "f:6: matmul: there are no such rates; expected FAMILY.flops or FAMILY.bytes, where "
	 "the families are matmul, gemm, convolution, elementwise, activation, pooling, reduction, "
	 "softmax, transpose, selection, others\n"},
	{RATES("fft.flops = 3"),
	 "f:6: fft.flops: there are no such rates; expected FAMILY.flops or FAMILY.bytes, where "
	 "the families are matmul, gemm, convolution, elementwise, activation, pooling, reduction, "
	 "softmax, transpose, selection, others\n"},
	{RATES("others.flops = 2"),
	 "f:6: others.flops: the key is in line 4 already; give it once\n"},
	{RATES("gemm.flops = -3"),
	 "f:6: gemm.flops: '-3' is not a rate; expected a number above 0, or several separated by "
	 "commas, each after its size and a colon; the unit comes last\n"},
	{RATES("gemm.flops = 3 GB/s"),
	 "f:6: gemm.flops: '3 GB/s' is not a rate; expected a number above 0, or several separated "
	 "by commas, each after its size and a colon; the unit comes last\n"},
	{RATES("gemm.flops = 4KiB:nan"),
	 "f:6: gemm.flops: 'nan' is not a rate; expected a number above 0, or several separated by "
	 "commas, each after its size and a colon; the unit comes last\n"},
	{RATES("gemm.flops ="),
	 "f:6: gemm.flops: '' is not a rate; expected a number above 0, or several separated by "
	 "commas, each after its size and a colon; the unit comes last\n"},
	{RATES("gemm.bytes = 0"),
	 "f:6: gemm.bytes: 0 GB/s is out of range; expected 1e-06 to 1e+07\n"},
	{RATES("gemm.flops = 20 PFLOP/s"),
	 "f:6: gemm.flops: 2e+07 GFLOP/s is out of range; expected 1e-06 to 1e+07\n"},
	{RATES("gemm.flops = 1e999"),
	 "f:6: gemm.flops: inf GFLOP/s is out of range; expected 1e-06 to 1e+07\n"},
	{RATES("gemm.flops = 1,2"),
	 "f:6: gemm.flops: each of several rates needs its size; expected SIZE:RATE, at most 24 of "
	 "them\n"},
	{RATES("gemm.flops = 4KiB:1,2"),
	 "f:6: gemm.flops: each of several rates needs its size; expected SIZE:RATE, at most 24 of "
	 "them\n"},
	{RATES("gemm.flops = 4XiB:1"),
	 "f:6: gemm.flops: '4XiB' is not a size; expected the size of a node, above 0, such as "
	 "2MiB, before the colon\n"},
	{RATES("gemm.flops = 0:1"),
	 "f:6: gemm.flops: '0' is not a size; expected the size of a node, above 0, such as 2MiB, "
	 "before the colon\n"},
	{RATES("gemm.flops = 4KiB:1, 4KiB:2"),
	 "f:6: gemm.flops: the sizes do not ascend; each must be larger than the one before\n"},
	{RATES("gemm.flops = 4MiB:1, 4KiB:2"),
	 "f:6: gemm.flops: the sizes do not ascend; each must be larger than the one before\n"},
};

TEST(test_parse__wrong)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct place_profile p = {.n_servers = 7};
		char *errors = NULL;
		int r = place_profile_parse("f", wrong[i].text, strlen(wrong[i].text), &p, &errors);

		assert_int_equal(r, PLACE_PROFILE_E_INVALID);
		assert_non_null(errors);
		if (strncmp(errors, wrong[i].sentence, strlen(wrong[i].sentence)) != 0)
			fail_msg("%s\ngave %s\nnot  %s", wrong[i].text, errors, wrong[i].sentence);
		/* The profile is unchanged. */
		assert_int_equal(p.n_servers, 7);
		assert_false(p.is_valid);
		free(errors);
	}
}

/* Each error is one sentence. Further errors are reported, too, up to a limit. */
TEST(test_parse__all_errors)
{
	static const char text[] = "[device]\nname = x\nservers = 0\ntask = 1\n[rates]\n"
				   "others.flops = -1\nothers.bytes = 1\n";
	struct place_profile p;
	char *errors = NULL, many[4096] = "[device]\n";
	unsigned int n = 0;

	assert_int_equal(place_profile_parse("f", text, strlen(text), &p, &errors),
			 PLACE_PROFILE_E_INVALID);
	for (const char *c = errors; *c; c++)
		n += *c == '\n';
	assert_int_equal(n, 3);
	free(errors);

	for (unsigned int i = 0; i < 300; i++)
		strcat(many, "a = 1\n");
	assert_int_equal(place_profile_parse("f", many, strlen(many), &p, &errors),
			 PLACE_PROFILE_E_INVALID);
	assert_non_null(strstr(errors, "f: and 289 more\n"));
	free(errors);
}

TEST(test_parse__long_line)
{
	struct place_profile p;
	char text[1024], *errors = NULL;

	snprintf(text, sizeof(text), "%s# %0190d\n", LEAST, 1);
	assert_int_equal(place_profile_parse("f", text, strlen(text), &p, &errors),
			 PLACE_PROFILE_E_INVALID);
	assert_string_equal(errors, "f:6: the line has 192 bytes; at most 190 are allowed\n");
	free(errors);
	snprintf(text, sizeof(text), "%s# %0188d\n", LEAST, 1);
	parse_right(text, &p);
}

/* Fill a profile with figures that need every digit, at both ends of their ranges and between. */
static void fill(struct place_profile *profile, unsigned int seed)
{
	const float ends[] = {PLACE_MIN_RATE, PLACE_MAX_RATE, 1.0f / 3, 9999999, 1.00000012f};

	*profile = (struct place_profile){
		.name = "Some card; of \x1b sorts",
		.source = "measured",
		.is_valid = true,
		.n_servers = 1024,
		.n_servers_per_task = 1023,
		.share_min_ns = PLACE_MAX_LATENCY_NS,
		.task_ns = 1.0f / 3,
		.node_ns = 0,
		.up_bytes_per_ns = seed % 2 ? 0 : 1.0f / 7,
		.down_bytes_per_ns = seed % 2 ? 0 : PLACE_MIN_RATE,
		.link_ns = seed % 2 ? 0 : 1e-30f,
		.memory_bytes = PLACE_MAX_MEMORY_BYTES,
		.active_watts = PLACE_MAX_WATTS,
	};
	for (unsigned int i = 0; i < OP_FAMILY_COUNT; i++) {
		for (unsigned int k = 0; k < PLACE_SIZE_CLASSES; k++) {
			struct place_rate *rate = &profile->rates[i][k];

			rate->flops_per_ns = ends[(seed + i * k) % ARRAY_SIZE(ends)];
			rate->bytes_per_ns = ends[(seed + i + k) % ARRAY_SIZE(ends)];
		}
	}
}

static char *write_text(const struct place_profile *profile)
{
	char *text = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&text, &bytes);

	assert_non_null(stream);
	place_profile_write(stream, profile);
	assert_int_equal(fclose(stream), 0);
	return text;
}

TEST(test_write__reads_back)
{
	struct place_profile profile, again;

	for (unsigned int seed = 0; seed < 10; seed++) {
		_cleanup_(freep) char *text = NULL;

		fill(&profile, seed);
		assert_null(place_profile_refusal(&profile));
		text = write_text(&profile);
		memset(&again, 0, sizeof(again));
		parse_right(text, &again);
		assert_string_equal(again.name, "Some card? of ? sorts");
		strcpy(again.name, profile.name);
		memset(again.name + strlen(again.name), 0, sizeof(again.name) - strlen(again.name));
		assert_memory_equal(&again, &profile, sizeof(profile));
	}
}

/* A written profile can be read, whatever name the driver gives its device. */
TEST(test_write__names)
{
	static const char *const names[] = {"",  "  ", " a", "a ", "[x]",   "# a",
					    "=", ";",  "\t", "\n", "\"a\"", "\xff\xfe"};
	struct place_profile profile, again;

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(freep) char *text = NULL;

		fill(&profile, 1);
		strcpy(profile.name, names[i]);
		memset(profile.source, 'a', sizeof(profile.source) - 1);
		text = write_text(&profile);
		parse_right(text, &again);
		assert_string_equal(again.source, profile.source);
	}
}

/* A file cut off anywhere is refused. */
TEST(test_parse__cut_off)
{
	struct place_profile profile, again;
	_cleanup_(freep) char *text = NULL;
	size_t length;

	fill(&profile, 0);
	text = write_text(&profile);
	length = strlen(text);
	for (size_t i = 0; i < length; i++) {
		char *errors = NULL;

		assert_int_equal(place_profile_parse("f", text, i, &again, &errors),
				 PLACE_PROFILE_E_INVALID);
		free(errors);
	}
}

TEST(test_refusal__each_figure)
{
	static const float bad[] = {-1, NAN, INFINITY, -INFINITY, 1e30f};
	struct place_profile p;

	for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
#define REFUSED(field, value, phrase)                                       \
	do {                                                                \
		fill(&p, 0);                                                \
		p.field = (value);                                          \
		assert_non_null(place_profile_refusal(&p));                 \
		assert_non_null(strstr(place_profile_refusal(&p), phrase)); \
	} while (0)
		REFUSED(share_min_ns, bad[i], "share");
		REFUSED(task_ns, bad[i], "task");
		REFUSED(node_ns, bad[i], "node");
		REFUSED(up_bytes_per_ns, bad[i], "link");
		REFUSED(down_bytes_per_ns, bad[i], "link");
		REFUSED(link_ns, bad[i], "link");
		REFUSED(active_watts, bad[i], "power");
		REFUSED(rates[OP_FAMILY_SELECTION][5].flops_per_ns, bad[i], "computing");
		REFUSED(rates[OP_FAMILY_MATMUL][0].bytes_per_ns, bad[i], "memory");
	}
	REFUSED(rates[OP_FAMILY_GEMM][3].flops_per_ns, 0, "computing");
	REFUSED(up_bytes_per_ns, 0, "link");
	REFUSED(n_servers, 0, "servers");
	REFUSED(n_servers, 1025, "servers");
	REFUSED(n_servers_per_task, 0, "per task");
	REFUSED(n_servers_per_task, 1025, "per task");
	REFUSED(memory_bytes, UINT64_MAX, "memory");
	REFUSED(is_valid, false, "no measurements");
#undef REFUSED
}

TEST(test_load__files)
{
	char folder[] = "/tmp/test-profile-XXXXXX", path[64], *errors = NULL;
	struct place_profile p;
	FILE *file;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/p", folder);
	assert_int_equal(place_profile_load(path, &p, &errors), PLACE_PROFILE_E_INVALID);
	assert_non_null(strstr(errors, "/p: cannot be opened: No such file"));
	free(errors);
	assert_int_equal(place_profile_load(folder, &p, &errors), PLACE_PROFILE_E_INVALID);
	assert_non_null(strstr(errors, ": is not a file; expected a file or a link to a file\n"));
	free(errors);

	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(place_profile_load(path, &p, &errors), PLACE_PROFILE_E_INVALID);
	free(errors);
	unlink(path);

	file = fopen(path, "w");
	assert_non_null(file);
	fputs(LEAST, file);
	fclose(file);
	assert_int_equal(place_profile_load(path, &p, &errors), 0);
	assert_string_equal(p.name, "x");
	assert_int_equal(truncate(path, PLACE_PROFILE_FILE_BYTES + 1), 0);
	assert_int_equal(place_profile_load(path, &p, &errors), PLACE_PROFILE_E_INVALID);
	assert_non_null(strstr(errors, "/p: is larger than 64 KiB, which is the limit\n"));
	free(errors);
	/* Holes in a file read as NUL, which is a control character. */
	assert_int_equal(truncate(path, PLACE_PROFILE_FILE_BYTES), 0);
	assert_int_equal(place_profile_load(path, &p, &errors), PLACE_PROFILE_E_INVALID);
	free(errors);
	unlink(path);
	rmdir(folder);
}

TEST(test_parse__no_memory)
{
	static const char *const texts[] = {LEAST, LEAST "a = 1\nothers.flops = 1\n"};

	for (unsigned int i = 0; i < ARRAY_SIZE(texts); i++) {
		for (unsigned int n = 1;; n++) {
			struct place_profile p;
			char *errors = NULL;
			int r;

			fail_alloc_at(n);
			r = place_profile_parse("f", texts[i], strlen(texts[i]), &p, &errors);
			if (!fail_alloc_stop()) {
				assert_int_equal(r, i ? PLACE_PROFILE_E_INVALID : 0);
				free(errors);
				break;
			}
			assert_int_equal(r, -ENOMEM);
			assert_null(errors);
		}
	}
}
