/* SPDX-License-Identifier: MIT */
/* Pinned maps: see pinned-map.h. */
#include "util/pinned-map.h"

#include <errno.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

static int call(int command, union bpf_attr *attr)
{
	int r = (int)syscall(SYS_bpf, command, attr, sizeof(*attr));

	return r < 0 ? -errno : r;
}

static uint64_t number_of(const void *at)
{
	return (uint64_t)(uintptr_t)at;
}

bool pinned_map_is_folder(const char *path)
{
	struct statfs info;

	return statfs(path, &info) == 0 && info.f_type == BPF_FS_MAGIC;
}

int pinned_map_open(const char *path, bool writes, uint32_t key_bytes, uint32_t value_bytes,
		    int *ret_fd)
{
	union bpf_attr get = {.pathname = number_of(path), .file_flags = writes ? 0 : BPF_F_RDONLY};
	struct bpf_map_info info = {0};
	union bpf_attr ask = {.info = {.info_len = sizeof(info), .info = number_of(&info)}};
	int fd = call(BPF_OBJ_GET, &get);

	if (fd < 0)
		return fd;
	ask.info.bpf_fd = (uint32_t)fd;
	/* For another kind of object the same bytes mean something else. */
	if (call(BPF_OBJ_GET_INFO_BY_FD, &ask) || ask.info.info_len < sizeof(uint32_t) * 5 ||
	    info.key_size != key_bytes || info.value_size != value_bytes) {
		close(fd);
		return -EPROTO;
	}
	*ret_fd = fd;
	return 0;
}

int pinned_map_get(int fd, const void *key, void *ret_value)
{
	union bpf_attr attr = {
		.map_fd = (uint32_t)fd, .key = number_of(key), .value = number_of(ret_value)};

	return call(BPF_MAP_LOOKUP_ELEM, &attr);
}

int pinned_map_delete(int fd, const void *key)
{
	union bpf_attr attr = {.map_fd = (uint32_t)fd, .key = number_of(key)};

	return call(BPF_MAP_DELETE_ELEM, &attr);
}

int pinned_map_put(int fd, const void *key, const void *value)
{
	union bpf_attr attr = {
		.map_fd = (uint32_t)fd, .key = number_of(key), .value = number_of(value)};

	return call(BPF_MAP_UPDATE_ELEM, &attr);
}

int pinned_map_next(int fd, const void *key, void *ret_key)
{
	union bpf_attr attr = {
		.map_fd = (uint32_t)fd, .key = number_of(key), .next_key = number_of(ret_key)};

	return call(BPF_MAP_GET_NEXT_KEY, &attr);
}
