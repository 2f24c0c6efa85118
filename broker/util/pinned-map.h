#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * BPF maps that another process loaded and pinned
 *
 * Using such a map needs only permission on its file, from Linux 5.19 on (before, CAP_BPF if
 * kernel.unprivileged_bpf_disabled is set), and no library: four system calls.
 */
#include <stdbool.h>
#include <stdint.h>

/* Return true if a BPF file system is mounted at @path. */
bool pinned_map_is_folder(const char *path);

/*
 * Open the map pinned at @path, for reading, and for writing if @writes. It must have this key and
 * value size. The caller owns *ret_fd.
 * Return: 0; -EPROTO: another size, or no map; negative errno.
 */
int pinned_map_open(const char *path, bool writes, uint32_t key_bytes, uint32_t value_bytes,
		    int *ret_fd);

/*
 * Get or delete a key's value.
 * Return: 0; -ENOENT: there is none; negative errno.
 */
int pinned_map_get(int fd, const void *key, void *ret_value);
int pinned_map_delete(int fd, const void *key);
/*
 * Set a key's value.
 * Return: 0; -E2BIG: there is no room; negative errno.
 */
int pinned_map_put(int fd, const void *key, const void *value);
/*
 * Get the key after @key; the first key if @key is NULL or absent.
 * Return: 0; -ENOENT: the end.
 */
int pinned_map_next(int fd, const void *key, void *ret_key);
