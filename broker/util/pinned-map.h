#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * Maps that somebody else loaded into the kernel and pinned
 *
 * Using one takes no privilege but that of its file, from Linux 5.19 on (before, CAP_BPF where
 * kernel.unprivileged_bpf_disabled is set), and no library: four system calls.
 */
#include <stdbool.h>
#include <stdint.h>

/* Is a file system of BPF's mounted at @path? */
bool pinned_map_is_folder(const char *path);

/*
 * Opens the one pinned at @path, to be read, or also written; it must be of that shape. *ret_fd is
 * the caller's. Return: 0; -EPROTO: it is of another shape, or no map; negative errno.
 */
int pinned_map_open(const char *path, bool writes, uint32_t key_bytes, uint32_t value_bytes,
		    int *ret_fd);

/* Return: 0; -ENOENT: there is none; negative errno. */
int pinned_map_get(int fd, const void *key, void *ret_value);
int pinned_map_delete(int fd, const void *key);
/* Return: 0; -E2BIG: there is no room; negative errno. */
int pinned_map_put(int fd, const void *key, const void *value);
/* The key after @key; the first one, if @key is NULL or not there. Return: 0; -ENOENT: the end. */
int pinned_map_next(int fd, const void *key, void *ret_key);
