/* SPDX-License-Identifier: MIT */
/*
 * Reading IDX files
 *
 * A file has a big-endian magic number (0, 0, element type, number of dimensions), the dimensions
 * as 32-bit numbers, and the elements. The files read here hold bytes (type 8), in three dimensions
 * for images and in one for labels. zlib reads gzipped and plain files alike. A header is believed
 * only if the file can hold the bytes that it announces.
 */
#include "images.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { IDX_BYTE = 8, IDX_MAX_DIMS = 3 };

static int read_exactly(gzFile file, void *ret, size_t bytes)
{
	uint8_t *at = ret;

	while (bytes > 0) {
		const unsigned int chunk = bytes < 1 << 24 ? (unsigned int)bytes : 1 << 24;
		const int n = gzread(file, at, chunk);

		if (n <= 0)
			return -EBADMSG;
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/*
 * Read a header of @n_dims dimensions.
 * Return: 0; -EBADMSG.
 */
static int read_header(gzFile file, unsigned int n_dims, size_t *ret_dims)
{
	const uint8_t magic[4] = {0, 0, IDX_BYTE, (uint8_t)n_dims};
	uint8_t header[4 + 4 * IDX_MAX_DIMS];

	if (read_exactly(file, header, 4 + 4 * n_dims) || memcmp(header, magic, 4) != 0)
		return -EBADMSG;
	for (unsigned int i = 0; i < n_dims; i++) {
		const uint8_t *dim = header + 4 + 4 * i;

		ret_dims[i] =
			(size_t)dim[0] << 24 | (size_t)dim[1] << 16 | (size_t)dim[2] << 8 | dim[3];
	}
	return 0;
}

/* Return an upper bound of a file's uncompressed bytes; deflate compresses at most 1032 to 1. */
static size_t bytes_possible(const char *path)
{
	struct stat stat_;

	if (stat(path, &stat_) < 0 || stat_.st_size <= 0)
		return 0;
	return (size_t)stat_.st_size > SIZE_MAX / 1032 ? SIZE_MAX : (size_t)stat_.st_size * 1032;
}

/*
 * Read up to @max items of @item_bytes.
 * Return: 0 with the items and their number; a negative errno, as images_read().
 */
static int read_file(const char *path, unsigned int n_dims, size_t item_bytes, size_t max,
		     uint8_t **ret, size_t *ret_n)
{
	size_t dims[IDX_MAX_DIMS] = {0}, bytes = 1, n;
	uint8_t *items = NULL;
	gzFile file;
	int r;

	errno = 0;
	file = gzopen(path, "rb");
	if (!file)
		return errno ? -errno : -ENOMEM;
	r = read_header(file, n_dims, dims);
	for (unsigned int i = 1; i < n_dims; i++)
		bytes *= dims[i];
	n = dims[0] < max ? dims[0] : max;
	/* Allocate memory only for items that the file can hold. */
	if (r == 0 && (bytes != item_bytes || n == 0 || n > bytes_possible(path) / bytes))
		r = -EBADMSG;
	if (r == 0) {
		items = malloc(n * bytes);
		r = items ? read_exactly(file, items, n * bytes) : -ENOMEM;
	}
	gzclose(file);
	if (r) {
		free(items);
		return r;
	}
	*ret = items;
	*ret_n = n;
	return 0;
}

int images_read(const char *folder, const char *set, size_t max, struct images *ret, char *ret_path,
		size_t path_bytes)
{
	struct images images = {0};
	size_t n_labels = 0;
	int r;

	snprintf(ret_path, path_bytes, "%s/%s-images-idx3-ubyte.gz", folder, set);
	r = read_file(ret_path, 3, IMAGE_PIXELS, max, &images.pixels, &images.n);
	if (r == 0) {
		snprintf(ret_path, path_bytes, "%s/%s-labels-idx1-ubyte.gz", folder, set);
		r = read_file(ret_path, 1, 1, images.n, &images.labels, &n_labels);
	}
	if (r == 0 && n_labels != images.n)
		r = -EBADMSG;
	for (size_t i = 0; r == 0 && i < images.n; i++)
		if (images.labels[i] >= IMAGE_CLASSES)
			r = -EBADMSG;
	if (r) {
		images_deinit(&images);
		return r;
	}
	*ret = images;
	return 0;
}

void images_deinit(struct images *images)
{
	free(images->pixels);
	free(images->labels);
	*images = (struct images){0};
}
