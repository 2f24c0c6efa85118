/* SPDX-License-Identifier: MIT */
/* The demo's vote, its exact reference, and its reader of image files */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "images.h"
#include "neighbours.h"
#include "support/test.h"

/* ---- The vote ---- */

static const uint8_t labels[] = {0, 1, 2, 3, 1, 2, 1, 9};

static unsigned int vote(unsigned int n, const int64_t *nearest)
{
	return neighbours_vote(nearest, n, labels);
}

TEST(test_vote__majority)
{
	/* Labels of the neighbours: 0 1 1 2 3; 9 1 1 1 2. */
	assert_int_equal(vote(5, (const int64_t[]){0, 1, 4, 2, 3}), 1);
	assert_int_equal(vote(5, (const int64_t[]){7, 1, 4, 6, 2}), 1);
	assert_int_equal(vote(1, (const int64_t[]){7}), 9);
}

TEST(test_vote__ties_to_the_nearest)
{
	/* Labels of the neighbours: 2 1 1 2 0; 1 2 2 1 0; 3 2 1 0 9. */
	assert_int_equal(vote(5, (const int64_t[]){2, 1, 4, 5, 0}), 2);
	assert_int_equal(vote(5, (const int64_t[]){1, 2, 5, 4, 0}), 1);
	assert_int_equal(vote(5, (const int64_t[]){3, 2, 1, 0, 7}), 3);
	/* Labels of the neighbours: 0 2 2 1 1. The nearest label has too few votes. */
	assert_int_equal(vote(5, (const int64_t[]){0, 2, 5, 1, 4}), 2);
}

/* ---- The reference ---- */

/* Compare with neighbours found by searching all images once per rank. */
static void expect_nearest(const struct images *train, const uint8_t *image, unsigned int n,
			   const int64_t *nearest)
{
	int64_t last_distance = -1, last_index = -1;

	for (unsigned int k = 0; k < n; k++) {
		int64_t best = -1, best_distance = INT64_MAX;

		for (size_t i = 0; i < train->n; i++) {
			int64_t distance = 0;

			for (size_t p = 0; p < IMAGE_PIXELS; p++) {
				const int64_t d =
					(int64_t)image[p] - train->pixels[i * IMAGE_PIXELS + p];

				distance += d * d;
			}
			if (distance < last_distance ||
			    (distance == last_distance && (int64_t)i <= last_index))
				continue;
			if (distance < best_distance) {
				best_distance = distance;
				best = (int64_t)i;
			}
		}
		assert_int_equal(nearest[k], best);
		last_distance = best_distance;
		last_index = best;
	}
}

TEST(test_find__against_search)
{
	enum { N = 200 };
	struct images train = {.pixels = malloc((N + 1) * IMAGE_PIXELS), .n = N};
	uint8_t *image = train.pixels + N * IMAGE_PIXELS;
	int64_t nearest[NEIGHBOURS_MAX];

	assert_non_null(train.pixels);
	srand(1);
	for (int round = 0; round < 10; round++) {
		/* The first rounds have few grey values, so that distances are equal. */
		for (size_t i = 0; i < (N + 1) * IMAGE_PIXELS; i++)
			train.pixels[i] = round < 5 ? (i % IMAGE_PIXELS < 3 ? rand() % 2 : 7)
						    : (uint8_t)rand();
		for (unsigned int n = 1; n <= NEIGHBOURS_MAX; n += 5) {
			neighbours_find(&train, image, n, nearest);
			expect_nearest(&train, image, n, nearest);
		}
	}
	/* The largest possible distance. */
	memset(train.pixels, 0, N * IMAGE_PIXELS);
	memset(image, 255, IMAGE_PIXELS);
	train.pixels[5 * IMAGE_PIXELS] = 1;
	neighbours_find(&train, image, 2, nearest);
	assert_int_equal(nearest[0], 5);
	assert_int_equal(nearest[1], 0);
	free(train.pixels);
}

TEST(test_fingerprint__tells_apart)
{
	const int64_t a[] = {1, 2, 3}, b[] = {1, 3, 2};

	assert_true(neighbours_fingerprint(0, a, 3) == neighbours_fingerprint(0, a, 3));
	assert_true(neighbours_fingerprint(0, a, 3) != neighbours_fingerprint(0, b, 3));
	assert_true(neighbours_fingerprint(0, a, 3) + neighbours_fingerprint(1, b, 3) !=
		    neighbours_fingerprint(1, a, 3) + neighbours_fingerprint(0, b, 3));
}

/* ---- Files ---- */

static char folder[] = "/tmp/rb-images-XXXXXX";

static void write_file(const char *name, const void *bytes, size_t n_bytes)
{
	char path[256];
	gzFile file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = gzopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(gzwrite(file, bytes, (unsigned int)n_bytes), n_bytes);
	assert_int_equal(gzclose(file), Z_OK);
}

enum { HEADER = 16, LABELS_HEADER = 8, N_IMAGES = 3 };

static uint8_t image_file[HEADER + N_IMAGES * IMAGE_PIXELS];
static uint8_t label_file[LABELS_HEADER + N_IMAGES];

static void write_set(size_t image_bytes, size_t label_bytes)
{
	write_file("t-images-idx3-ubyte.gz", image_file, image_bytes);
	write_file("t-labels-idx1-ubyte.gz", label_file, label_bytes);
}

static int read_set(size_t max, struct images *ret, const char *at_fault)
{
	char path[256] = "";
	int r = images_read(folder, "t", max, ret, path, sizeof(path));

	if (r)
		assert_non_null(strstr(path, at_fault));
	return r;
}

static int make_files(void **state)
{
	static const uint8_t image_header[HEADER] = {0, 0, 8, 3,  0, 0, 0, N_IMAGES,
						     0, 0, 0, 28, 0, 0, 0, 28};
	static const uint8_t label_header[LABELS_HEADER] = {0, 0, 8, 1, 0, 0, 0, N_IMAGES};

	memcpy(image_file, image_header, HEADER);
	memcpy(label_file, label_header, LABELS_HEADER);
	for (size_t i = 0; i < N_IMAGES * IMAGE_PIXELS; i++)
		image_file[HEADER + i] = (uint8_t)(i * 7);
	for (size_t i = 0; i < N_IMAGES; i++)
		label_file[LABELS_HEADER + i] = (uint8_t)(9 - i);
	write_set(sizeof(image_file), sizeof(label_file));
	return 0;
}

TEST(test_read__whole_and_part, make_files)
{
	struct images images;

	for (size_t max = 1; max <= N_IMAGES + 1; max++) {
		const size_t n = max < N_IMAGES ? max : N_IMAGES;

		assert_int_equal(read_set(max, &images, ""), 0);
		assert_int_equal(images.n, n);
		assert_memory_equal(images.pixels, image_file + HEADER, n * IMAGE_PIXELS);
		assert_memory_equal(images.labels, label_file + LABELS_HEADER, n);
		images_deinit(&images);
	}
}

TEST(test_read__damaged, make_files)
{
	/* Type, number of dimensions, height, and a count that the file's size contradicts. */
	static const size_t at[] = {2, 3, 11, 4, 0};
	struct images images;

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		image_file[at[i]] ^= 1;
		write_set(sizeof(image_file), sizeof(label_file));
		assert_int_equal(read_set(SIZE_MAX, &images, "images"), -EBADMSG);
		image_file[at[i]] ^= 1;
	}
	/* A file of 0 images. */
	image_file[7] = 0;
	write_set(sizeof(image_file), sizeof(label_file));
	assert_int_equal(read_set(9, &images, "images"), -EBADMSG);
	image_file[7] = N_IMAGES;

	for (size_t bytes = 0; bytes < sizeof(image_file); bytes += 97) {
		write_set(bytes, sizeof(label_file));
		assert_int_equal(read_set(9, &images, "images"), -EBADMSG);
	}
	for (size_t bytes = 0; bytes < sizeof(label_file); bytes++) {
		write_set(sizeof(image_file), bytes);
		assert_int_equal(read_set(9, &images, "labels"), -EBADMSG);
	}
}

TEST(test_read__impossible_labels, make_files)
{
	struct images images;

	label_file[LABELS_HEADER + 1] = IMAGE_CLASSES;
	write_set(sizeof(image_file), sizeof(label_file));
	assert_int_equal(read_set(9, &images, "labels"), -EBADMSG);
	label_file[LABELS_HEADER + 1] = 0;
	/* Fewer labels than images. */
	label_file[7] = N_IMAGES - 1;
	write_set(sizeof(image_file), sizeof(label_file));
	assert_int_equal(read_set(9, &images, "labels"), -EBADMSG);
	assert_int_equal(read_set(N_IMAGES - 1, &images, ""), 0);
	images_deinit(&images);
}

static int remove_file(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return unlink(path);
}

TEST(test_read__missing, make_files)
{
	struct images images;

	assert_int_equal(remove_file("t-labels-idx1-ubyte.gz"), 0);
	assert_int_equal(read_set(9, &images, "labels"), -ENOENT);
	assert_int_equal(remove_file("t-images-idx3-ubyte.gz"), 0);
	assert_int_equal(read_set(9, &images, "images"), -ENOENT);
}

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	remove_file("t-images-idx3-ubyte.gz");
	remove_file("t-labels-idx1-ubyte.gz");
	return rmdir(folder);
}

TEST_MAIN(make_folder, remove_folder)
