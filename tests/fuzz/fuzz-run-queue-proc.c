/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing the parsers of /proc
 *
 * The input is the text of any of these files. The result of a parser must not depend on the bytes
 * after the text and must stay in its bounds. A parser that finds nothing must leave its output
 * unchanged.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "util/proc.h"
#include "util/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Outputs of all parsers; an output that is not found keeps its previous value. */
struct found {
	struct proc_schedstat schedstat;
	struct proc_task task;
	struct proc_stat stat;
	uint64_t involuntary, pressure_ns, throttled_ns;
	char cgroup[64], cpu_cgroup[64], mount[64], cpu_mount[64];
};

static void parse(const char *text, size_t bytes, struct found *found)
{
	static const uint64_t mask[PROC_MASK_WORDS] = {0xf, 1};
	const struct found before = *found;

	if (!proc_parse_schedstat(text, bytes, &found->schedstat))
		assert(memcmp(&before.schedstat, &found->schedstat, sizeof(before.schedstat)) == 0);
	if (!proc_parse_task(text, bytes, &found->task))
		assert(memcmp(&before.task, &found->task, sizeof(before.task)) == 0);
	if (!proc_parse_stat(text, bytes, mask, 10000000, &found->stat))
		assert(memcmp(&before.stat, &found->stat, sizeof(before.stat)) == 0);
	if (!proc_parse_involuntary(text, bytes, &found->involuntary))
		assert(before.involuntary == found->involuntary);
	if (!proc_parse_pressure(text, bytes, &found->pressure_ns))
		assert(before.pressure_ns == found->pressure_ns);
	if (!proc_parse_throttled(text, bytes, &found->throttled_ns))
		assert(before.throttled_ns == found->throttled_ns);
	if (proc_parse_cgroup(text, bytes, NULL, found->cgroup, sizeof(found->cgroup)))
		assert(found->cgroup[0] == '/');
	if (proc_parse_cgroup(text, bytes, "cpu", found->cpu_cgroup, sizeof(found->cpu_cgroup)))
		assert(found->cpu_cgroup[0] == '/');
	if (proc_parse_mounts(text, bytes, NULL, found->mount, sizeof(found->mount)))
		assert(found->mount[0] == '/');
	if (proc_parse_mounts(text, bytes, "cpu", found->cpu_mount, sizeof(found->cpu_mount)))
		assert(found->cpu_mount[0] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct found first, again;
	char *text, name[PROC_NAME_BYTES];

	if (bytes > PROC_TEXT_BYTES)
		return 0;
	/*
	 * The allocation has exactly the text's size, so that a sanitizer detects an overrun of one
	 * byte.
	 */
	text = calloc(1, bytes ? bytes : 1);
	assert(text);
	if (bytes)
		memcpy(text, data, bytes);
	memset(&first, 0x5a, sizeof(first));
	parse(text, bytes, &first);
	copy_printable(text, bytes, name, sizeof(name));
	for (const char *at = name; *at; at++)
		assert(*at >= ' ' && *at <= '~');
	assert(memchr(name, '\0', sizeof(name)));
	free(text);

	text = malloc(bytes + 64);
	assert(text);
	memset(text, '7', bytes + 64);
	if (bytes)
		memcpy(text, data, bytes);
	memset(&again, 0x5a, sizeof(again));
	parse(text, bytes, &again);
	free(text);
	assert(memcmp(&first.schedstat, &again.schedstat, sizeof(first.schedstat)) == 0);
	assert(first.task.start_ticks == again.task.start_ticks);
	assert(first.stat.busy_ns == again.stat.busy_ns &&
	       first.stat.idle_ns == again.stat.idle_ns);
	assert(first.involuntary == again.involuntary && first.pressure_ns == again.pressure_ns);
	assert(first.throttled_ns == again.throttled_ns);
	assert(memcmp(first.cgroup, again.cgroup, sizeof(first.cgroup)) == 0);
	assert(memcmp(first.mount, again.mount, sizeof(first.mount)) == 0);
	return 0;
}
