#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Labelled images in the IDX format
 *
 * Fashion-MNIST as installed by Debian's dataset-fashion-mnist: gzipped files, one of images and
 * one of labels. The format is described at http://yann.lecun.com/exdb/mnist/.
 */
#include <stddef.h>
#include <stdint.h>

#define IMAGES_FOLDER "/usr/share/datasets/fashion-mnist"

/* All images of this data set have this size. All labels are below IMAGE_CLASSES. */
enum { IMAGE_SIDE = 28, IMAGE_PIXELS = IMAGE_SIDE * IMAGE_SIDE, IMAGE_CLASSES = 10 };

struct images {
	uint8_t *pixels; /* [n][IMAGE_PIXELS], row-major, 0 black to 255 white */
	uint8_t *labels; /* [n] */
	size_t n;
};

/*
 * Read the first @max images of the set whose files in @folder begin with @set ("train", "t10k").
 * Return: 0 with the images, owned by the caller; otherwise, with the path of the faulty file in
 * @ret_path:
 *   -ENOENT   a file does not exist; another errno: it cannot be opened or read
 *   -EBADMSG  a file is damaged, or is no IDX file of such images
 *   -ENOMEM
 */
int images_read(const char *folder, const char *set, size_t max, struct images *ret, char *ret_path,
		size_t path_bytes);
void images_deinit(struct images *images);
