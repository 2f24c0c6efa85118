/* SPDX-License-Identifier: MIT */
/*
 * A watcher: it reads a tenant's statistics as often as possible
 *
 * Use and maximum come in one reply, of the same moment. Use may exceed the maximum only if the
 * maximum was lowered. The excess never grows, and ends.
 */
#include "integration/fight.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "integration/harness.h"

unsigned int fight_tenant_of(unsigned int member)
{
	static const unsigned int of[FIGHT_MEMBERS] = {0, 1, 1, 2, 2, 0, 1, 2, 1, 2};

	return of[member];
}

void fight_fail(struct fight *fight, unsigned int member, const char *format, ...)
{
	char text[FIGHT_TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!atomic_exchange(&fight->has_failed, true))
		snprintf(fight->failure, sizeof(fight->failure), "%.400s (member %u, tenant %s)",
			 text, member, fight->tenants[fight_tenant_of(member)].name);
	_exit(1);
}

struct rbk *fight_connect(struct fight *fight, unsigned int member, const char *name)
{
	struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = fight->socket_path,
		.name = name,
		.timeout_ns = harness_slow_ns(FIGHT_BOUND_NS),
	};
	uint64_t start_ns = harness_now_ns();
	struct rbk_error error = {""};
	struct rbk *rbk;

	while (rbk_connect(&options, &rbk, &error)) {
		if (harness_now_ns() - start_ns > harness_slow_ns(FIGHT_BOUND_NS))
			fight_fail(fight, member, "cannot connect: %s", error.text);
		harness_sleep_ms(2);
	}
	return rbk;
}

/* The last reading, and when the current excess began; 0: none. */
struct excess {
	uint64_t used_bytes, max_bytes, since_ns;
};

static void check_excess(struct fight *fight, unsigned int member, struct excess *excess,
			 uint64_t used_bytes, uint64_t max_bytes)
{
	struct fight_sight *sight = &fight->sights[fight_tenant_of(member)];
	uint64_t now_ns = harness_now_ns();

	if (used_bytes <= max_bytes) {
		excess->since_ns = 0;
	} else {
		sight->n_over++;
		if (excess->since_ns == 0)
			excess->since_ns = now_ns;
		/*
		 * The tenant was within the maximum of the last reading, or its excess has not
		 * grown.
		 */
		else if (excess->max_bytes == max_bytes && used_bytes > excess->used_bytes)
			fight_fail(fight, member, "%llu bytes, of %llu allowed, and before %llu",
				   (unsigned long long)used_bytes, (unsigned long long)max_bytes,
				   (unsigned long long)excess->used_bytes);
		if (now_ns - excess->since_ns > harness_slow_ns(FIGHT_BOUND_NS))
			fight_fail(fight, member, "%llu bytes, of %llu allowed, for %llu ms",
				   (unsigned long long)used_bytes, (unsigned long long)max_bytes,
				   (unsigned long long)((now_ns - excess->since_ns) / 1000000));
	}
	if (used_bytes > fight->tenants[fight_tenant_of(member)].max_bytes)
		fight_fail(fight, member, "%llu bytes, of %llu ever allowed",
			   (unsigned long long)used_bytes,
			   (unsigned long long)fight->tenants[fight_tenant_of(member)].max_bytes);
	excess->used_bytes = used_bytes;
	excess->max_bytes = max_bytes;
}

int fight_watcher(struct fight *fight, unsigned int member)
{
	struct fight_sight *sight = &fight->sights[fight_tenant_of(member)];
	const struct fight_tenant *about = &fight->tenants[fight_tenant_of(member)];
	struct rbk *rbk = fight_connect(fight, member, "watcher");
	struct excess excess = {0};
	struct rbk_tenant tenant;
	int r;

	while (!fight->stop) {
		const struct rbk_tenant_device *gpu = &tenant.devices[RBK_DEVICE_GPU];

		r = rbk_tenant(rbk, &tenant);
		if (r)
			fight_fail(fight, member, "rbk_tenant(): %s", strerror(-r));
		if (strcmp(tenant.name, about->name) != 0)
			fight_fail(fight, member, "belongs to tenant %s", tenant.name);
		if (gpu->vram_reserve != about->reserve_bytes)
			fight_fail(fight, member, "has a reserve of %llu bytes",
				   (unsigned long long)gpu->vram_reserve);
		check_excess(fight, member, &excess, gpu->vram.used, gpu->vram.max);
		if (gpu->gtt.used > gpu->gtt.max)
			fight_fail(fight, member, "%llu bytes of GTT, of %llu allowed",
				   (unsigned long long)gpu->gtt.used,
				   (unsigned long long)gpu->gtt.max);
		if (tenant.host_bytes.used > tenant.host_bytes.max)
			fight_fail(fight, member, "%llu bytes of the host, of %llu allowed",
				   (unsigned long long)tenant.host_bytes.used,
				   (unsigned long long)tenant.host_bytes.max);
		sight->used_bytes = gpu->vram.used;
		sight->gtt_bytes = gpu->gtt.used;
		sight->max_bytes = gpu->vram.max;
		if (gpu->vram.used > sight->most_bytes)
			sight->most_bytes = gpu->vram.used;
		sight->n_evictions = tenant.n_evictions;
		sight->n_returns = tenant.n_returns;
		sight->n_constraints = tenant.n_memory_constraints;
		sight->n_looks++;
		harness_sleep_ms(2);
	}
	rbk_disconnect(rbk);
	return 0;
}
