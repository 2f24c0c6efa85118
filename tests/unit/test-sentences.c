/* SPDX-License-Identifier: MIT */
/* Sentences about errors in files */
#include <errno.h>
#include <stdlib.h>

#include "fail-alloc.h"
#include "support/test.h"
#include "util/sentences.h"

__attribute__((format(printf, 5, 6))) static int add(struct sentences *sentences, const char *file,
						     unsigned int line, const char *key,
						     const char *format, ...)
{
	va_list args;
	int r;

	va_start(args, format);
	r = sentences_add(sentences, file, line, key, format, args);
	va_end(args);
	return r;
}

TEST(test_sentences__parts)
{
	struct sentences sentences = {0};

	assert_int_equal(add(&sentences, "a.conf", 12, "weight", "'%d' is not allowed", 0), 0);
	assert_int_equal(add(&sentences, "b.conf", 4294967295u, NULL, "is no line"), 0);
	assert_int_equal(add(&sentences, "c.conf", 0, NULL, "and %u more", 3u), 0);
	assert_string_equal(sentences.text, "a.conf:12: weight: '0' is not allowed\n"
					    "b.conf:4294967295: is no line\n"
					    "c.conf: and 3 more\n");
	free(sentences.text);
}

TEST(test_sentences__no_memory)
{
	struct sentences sentences = {0};

	assert_int_equal(add(&sentences, "a.conf", 1, "key", "first"), 0);
	fail_alloc_at(1);
	assert_int_equal(add(&sentences, "a.conf", 2, "key", "second"), -ENOMEM);
	assert_true(fail_alloc_stop());
	assert_string_equal(sentences.text, "a.conf:1: key: first\n");
	free(sentences.text);
}

TEST(test_sentences__limit)
{
	struct sentences sentences = {.max = 2};

	for (unsigned int i = 1; i <= 2; i++)
		assert_int_equal(add(&sentences, "f", i, NULL, "wrong"), 0);
	assert_int_equal(sentences_end(&sentences, "f"), 0);
	assert_string_equal(sentences.text, "f:1: wrong\nf:2: wrong\n");
	for (unsigned int i = 3; i <= 5; i++)
		assert_int_equal(add(&sentences, "f", i, NULL, "wrong"), 0);
	fail_alloc_at(1);
	assert_int_equal(sentences_end(&sentences, "f"), -ENOMEM);
	assert_true(fail_alloc_stop());
	assert_int_equal(sentences_end(&sentences, "f"), 0);
	assert_string_equal(sentences.text, "f:1: wrong\nf:2: wrong\nf: and 3 more\n");
	assert_int_equal(sentences.n, 5);
	free(sentences.text);
}
