#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Files in which the broker keeps what it knows for its next start
 *
 * They lie in one folder, which the broker's user owns. A file that another user could have written
 * is refused; what is in it is the caller's to check. Any thread.
 */
#include <stddef.h>

enum {
	STATE_FILE_E_ABSENT = 1,  /* no file */
	STATE_FILE_E_REFUSED = 2, /* the file or the folder cannot be used */
};

/*
 * Read file @name of @folder, of at most @max bytes, into *ret, which the caller frees. A NUL
 * follows the *ret_n bytes.
 * Return: 0; STATE_FILE_E_ABSENT; STATE_FILE_E_REFUSED, with a phrase in *ret_why; -ENOMEM.
 */
int state_file_read(const char *folder, const char *name, size_t max, char **ret, size_t *ret_n,
		    const char **ret_why);

/*
 * Put @n bytes in place of an earlier file @name of @folder: at any time there is one of the two,
 * whole.
 * Return: 0; negative errno.
 */
int state_file_write(const char *folder, const char *name, const char *bytes, size_t n);
