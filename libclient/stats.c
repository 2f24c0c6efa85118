/* SPDX-License-Identifier: MIT */
/*
 * Statistics pages, and force-CPU
 *
 * A page is mapped only if it is valid: a memfd sealed against shrinking, so that reading it can
 * never end in SIGBUS, with every section inside. The offsets of the sections are copied out once,
 * because a page is the broker's memory and might change.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ringbroker/stats.h>

#include "libclient/private.h"
#include "shm/stats-layout.h"

_Static_assert((int)RBK_STATS_OWN == (int)RBK_WIRE_STATS_OWN, "the same numbers");
_Static_assert((int)RBK_STATS_ALL == (int)RBK_WIRE_STATS_ALL, "the same numbers");
_Static_assert((int)RBK_STATS_OF_TENANT == (int)RBK_WIRE_STATS_TENANT, "the same numbers");

static int check_offered(const struct rbk *rbk, struct rbk_error *error)
{
	int r = client_check(rbk, error);

	if (r)
		return r;
	if (!(rbk->features & RBK_FEAT_STATS))
		return client_error(error, -EOPNOTSUPP,
				    "this broker does not support statistics pages");
	return 0;
}

static int request_stats_of(struct rbk *rbk, uint32_t type, unsigned int whose, uint32_t tenant,
			    struct client_answer *ret, struct rbk_error *error)
{
	struct rbk_wire_stats_of request = {
		.request.type = type,
		.whose = whose,
		.tenant = tenant,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	int r;

	r = check_offered(rbk, error);
	if (r)
		return r;
	if (whose > RBK_STATS_OF_TENANT || (whose != RBK_STATS_OF_TENANT && tenant != 0))
		return client_error(error, -EINVAL,
				    "kind %u of statistics is unknown, or does not take tenant %u",
				    whose, tenant);
	return client_request(rbk, &message, ret, error);
}

static int map_page(int fd, uint64_t bytes, struct rbk_stats_view *ret, struct rbk_error *error)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat stat;
	void *map;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &stat) || bytes == 0 ||
	    bytes > SIZE_MAX || stat.st_size < 0 || (uint64_t)stat.st_size != bytes)
		return client_error(error, -EPROTO, "the statistics page has a wrong seal or size");
	map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return client_error(error, -errno, "cannot map the statistics page: %m");
	if (!rbk_stats_view(ret, map, bytes)) {
		munmap(map, (size_t)bytes);
		return client_error(error, -EPROTO, "the statistics page has an unknown format");
	}
	return 0;
}

RBK_EXPORT int rbk_stats_map(struct rbk *rbk, unsigned int whose, uint32_t tenant,
			     struct rbk_stats_view *ret, struct rbk_error *error)
{
	struct client_answer answer;
	int r;

	r = request_stats_of(rbk, RBK_WIRE_STATS_PAGE, whose, tenant, &answer, error);
	if (r)
		return r;
	r = map_page(answer.fds[0], answer.reply.stats_page.bytes, ret, error);
	client_close(&answer.fds[0]);
	return r;
}

RBK_EXPORT void rbk_stats_unmap(struct rbk_stats_view *view)
{
	if (!view || !view->page)
		return;
	munmap((void *)view->page, (size_t)view->bytes);
	view->page = NULL;
}

RBK_EXPORT int rbk_stats_reset(struct rbk *rbk, unsigned int whose, uint32_t tenant,
			       struct rbk_error *error)
{
	struct client_answer answer;

	return request_stats_of(rbk, RBK_WIRE_STATS_RESET, whose, tenant, &answer, error);
}

RBK_EXPORT int rbk_force_cpu(struct rbk *rbk, int value, int *ret_value, struct rbk_error *error)
{
	struct rbk_wire_control request = {
		.request.type = RBK_WIRE_CONTROL,
		.setting = RBK_WIRE_FORCE_CPU,
		.flags = value == RBK_ASK ? 0 : RBK_WIRE_CONTROL_SET,
		.value = value == RBK_ASK ? 0 : (uint64_t)value,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	int r;

	r = check_offered(rbk, error);
	if (r)
		return r;
	if (value < RBK_ASK || value > 1)
		return client_error(error, -EINVAL, "force-cpu is 0 or 1, not %d", value);
	r = client_request(rbk, &message, &answer, error);
	if (r)
		return r;
	if (ret_value)
		*ret_value = answer.reply.setting.value != 0;
	return 0;
}
