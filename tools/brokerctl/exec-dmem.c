/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: the kernel's limit on device memory, for every API
 *
 * dmem.max of the program's cgroup is the maximum of its lease, dmem.low the protected minimum.
 * Some kernels accept a lower maximum without an error but keep the old value while more is in use.
 * The value is therefore read back after each write, and written again until it holds. Other
 * programs may write to these files, too; a lower limit of theirs is kept.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "exec.h"
#include "monitor/text.h"

static const char *limit_text(uint64_t bytes)
{
	return bytes == DMEM_NO_LIMIT ? "no limit" : text_bytes(bytes);
}

static const char *why(const struct exec_dmem *dmem, int r, char text[EXEC_TEXT_BYTES])
{
	switch (r) {
	case DMEM_E_NO_FILE:
		return "the cgroup has no dmem controller any more, or is gone";
	case DMEM_E_NO_REGION:
		snprintf(text, EXEC_TEXT_BYTES, "dmem.max has no number for a region %s",
			 text_name(dmem->region));
		return text;
	case DMEM_E_SEVERAL:
		snprintf(text, EXEC_TEXT_BYTES, "the device has several regions %s",
			 text_name(dmem->region));
		return text;
	default:
		return strerror(-r);
	}
}

/*
 * Write a limit and read it back.
 * Return: true if the limit is as requested; else @ret_text says why not.
 */
static bool set(const struct exec_dmem *dmem, const char *file, uint64_t bytes, uint64_t *ret_bytes,
		char ret_text[EXEC_TEXT_BYTES])
{
	char text[EXEC_TEXT_BYTES / 2 + EXEC_TEXT_BYTES];
	int r = dmem_write(dmem->fd, file, dmem->region, bytes), read_r;

	/* Read back after an error, too: the limit may have the requested value already. */
	read_r = dmem_read(dmem->fd, file, dmem->region, ret_bytes);
	if (read_r == 0 && *ret_bytes == bytes)
		return true;
	if (read_r || r)
		snprintf(ret_text, EXEC_TEXT_BYTES, "%s cannot be set: %.300s", file,
			 why(dmem, read_r ? read_r : r, text));
	else
		snprintf(ret_text, EXEC_TEXT_BYTES, "the kernel keeps %s of %s at %s", file,
			 dmem->region, limit_text(*ret_bytes));
	if (read_r)
		*ret_bytes = DMEM_NO_LIMIT;
	return false;
}

void exec_dmem_note_use(struct exec_dmem *dmem)
{
	uint64_t bytes;

	if (!dmem->has_region)
		return;
	if (dmem_read(dmem->fd, "dmem.peak", dmem->region, &bytes) &&
	    dmem_read(dmem->fd, "dmem.current", dmem->region, &bytes))
		return;
	if (bytes != DMEM_NO_LIMIT && bytes > dmem->peak_bytes)
		dmem->peak_bytes = bytes;
}

bool exec_dmem_begin(struct exec_dmem *dmem, int cgroup_fd, const char *memory, uint64_t max_bytes,
		     uint64_t low_bytes, char ret_text[EXEC_TEXT_BYTES])
{
	char text[EXEC_TEXT_BYTES], low_text[EXEC_TEXT_BYTES];
	uint64_t low;
	int r;

	*dmem = (struct exec_dmem){.fd = cgroup_fd};
	snprintf(dmem->region, sizeof(dmem->region), "%s", memory);
	if (!memory[0]) {
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "the broker knows no dmem region of the kernel for the device's memory");
		return false;
	}
	r = dmem_find(cgroup_fd, memory, dmem->region);
	if (r) {
		snprintf(ret_text, EXEC_TEXT_BYTES, "%.400s", why(dmem, r, text));
		return false;
	}
	dmem->has_region = true;
	dmem->wanted_bytes = max_bytes;
	dmem->is_held = set(dmem, "dmem.max", max_bytes, &dmem->set_bytes, text);
	if (!dmem->is_held)
		snprintf(ret_text, EXEC_TEXT_BYTES, "%.400s", text);
	else if (set(dmem, "dmem.low", low_bytes, &low, low_text))
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "dmem.max of %s is %s, dmem.low is %s, limited by dmem.low of the cgroups "
			 "above",
			 dmem->region, text_bytes(max_bytes), text_bytes(low_bytes));
	else
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "dmem.max of %s is %s, but nothing is protected: %.300s", dmem->region,
			 text_bytes(max_bytes), low_text);
	return dmem->is_held;
}

bool exec_dmem_follow(struct exec_dmem *dmem, uint64_t max_bytes, char ret_text[EXEC_TEXT_BYTES])
{
	bool was_held = dmem->is_held, is_other = max_bytes != dmem->wanted_bytes;
	uint64_t bytes, held_bytes = max_bytes;
	char text[EXEC_TEXT_BYTES];
	int r;

	if (!dmem->has_region)
		return false;
	exec_dmem_note_use(dmem);
	r = dmem_read(dmem->fd, "dmem.max", dmem->region, &bytes);
	dmem->wanted_bytes = max_bytes;
	if (r) {
		dmem->is_held = false;
		snprintf(text, sizeof(text), "%.300s", why(dmem, r, ret_text));
	} else if (bytes <= max_bytes && bytes != dmem->set_bytes) {
		/* Another program has lowered the limit. */
		dmem->is_held = true;
		held_bytes = bytes;
	} else if (bytes == max_bytes) {
		dmem->is_held = true;
	} else {
		dmem->is_held = set(dmem, "dmem.max", max_bytes, &dmem->set_bytes, text);
	}
	if (was_held == dmem->is_held && !is_other)
		return false;
	if (dmem->is_held)
		snprintf(ret_text, EXEC_TEXT_BYTES, "dmem.max of %s is %s", dmem->region,
			 text_bytes(held_bytes));
	else
		snprintf(ret_text, EXEC_TEXT_BYTES, "%.300s; the wanted limit is %s", text,
			 text_bytes(max_bytes));
	return true;
}
