/* SPDX-License-Identifier: MIT */
/*
 * Budgets: what the tenant may use, what a plan needs of each device, and a refusal that is
 * handled.
 *
 *	cc budgets.c -o budgets $(pkg-config --cflags --libs ringbroker)
 *	./budgets [MIB]
 */
#include <errno.h>
#include <inttypes.h>
#include <ringbroker.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB     (1024 * 1024)
#define N_ELEMS 65536

static void show(const char *what, const struct rbk_use *use)
{
	printf("%s: %" PRIu64 " KiB of ", what, use->used / 1024);
	if (use->max == UINT64_MAX)
		printf("no limit\n");
	else
		printf("%" PRIu64 " KiB\n", use->max / 1024);
}

/* Return: the bytes that the tenant has left for arenas. Other sessions of it may take them. */
static uint64_t room(const struct rbk_tenant *tenant)
{
	uint64_t host = tenant->host_bytes.max - tenant->host_bytes.used;
	uint64_t arenas = tenant->arena_bytes.max - tenant->arena_bytes.used;

	return host < arenas ? host : arenas;
}

/*
 * Make a cache of @wish bytes, or of half of what the tenant has left. A service should have a
 * smaller size that it can run with: a limit is an administrator's decision, not a failure.
 */
static int make_cache(struct rbk *rbk, uint64_t wish, struct rbk_arena **ret,
		      struct rbk_error *error)
{
	int r = rbk_arena_new(rbk, wish, ret, error);
	struct rbk_tenant tenant;

	if (r != -EDQUOT)
		return r;
	printf("refused: %s\n", error->text); /* the sentence names tenant and key */
	r = rbk_get_tenant(rbk, &tenant, error);
	if (r)
		return r;
	return rbk_arena_new(rbk, room(&tenant) / 2, ret, error);
}

/* Print what the plan needs of each device. Return: true if it can run on one of them. */
static bool show_plan(const struct rbk_plan *plan)
{
	struct rbk_plan_memory memory[RBK_MAX_DEVICES];
	unsigned int n_devices, n_usable = 0;
	uint64_t n_constrained;

	if (rbk_plan_memory(plan, memory, RBK_MAX_DEVICES, &n_devices, &n_constrained))
		return false;
	for (unsigned int i = 0; i < n_devices && i < RBK_MAX_DEVICES; i++) {
		printf("device %u: needs %" PRIu64 " KiB, may have %" PRIu64 " KiB: %s\n", i,
		       memory[i].required_bytes / 1024, memory[i].available_bytes / 1024,
		       memory[i].state == RBK_MEMORY_RESIDENT      ? "resident"
		       : memory[i].state == RBK_MEMORY_EVICTED     ? "not loaded"
		       : memory[i].state == RBK_MEMORY_NEVER_FITS  ? "never fits"
		       : memory[i].state == RBK_MEMORY_UNSUPPORTED ? "cannot run it"
								   : "lost");
		n_usable += memory[i].state == RBK_MEMORY_RESIDENT ||
			    memory[i].state == RBK_MEMORY_EVICTED;
	}
	printf("%" PRIu64 " tasks ran elsewhere for lack of memory\n", n_constrained);
	return n_usable > 0;
}

int main(int argc, char **argv)
{
	uint64_t wish = (argc > 1 ? strtoull(argv[1], NULL, 10) : 256) * MIB;
	struct rbk_error error;
	const uint32_t dims[] = {N_ELEMS};
	struct rbk_tenant tenant;
	struct rbk_arena *cache;
	struct rbk_plan *plan;
	struct rbk *rbk;
	struct rbk_builder *b = rbk_builder_new("budgets");
	unsigned int in = rbk_builder_input(b, "in", RBK_DTYPE_F32, 1, dims);
	unsigned int between = rbk_builder_scratch(b, "between", RBK_DTYPE_F32, 1, dims);
	unsigned int out = rbk_builder_output(b, "out", RBK_DTYPE_F32, 1, dims);

	rbk_builder_unary(b, "Exp", in, between);
	rbk_builder_unary(b, "Neg", between, out);
	if (rbk_connect(NULL, &rbk, &error) || rbk_plan_new(rbk, b, 1, &plan, &error) ||
	    make_cache(rbk, wish, &cache, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	printf("the cache has %zu MiB\n", rbk_arena_bytes(cache) / MIB);

	if (rbk_get_tenant(rbk, &tenant, &error))
		return fprintf(stderr, "%s\n", error.text), 1;
	printf("tenant %s\n", tenant.name);
	show("host memory", &tenant.host_bytes);
	show("arenas", &tenant.arena_bytes);
	for (uint32_t i = RBK_DEVICE_GPU; i < tenant.n_devices; i++)
		show("device memory", &tenant.devices[i].vram);
	if (tenant.arena_bytes.used < rbk_arena_bytes(cache) || !show_plan(plan))
		return fprintf(stderr, "the plan cannot run, or the cache is not charged\n"), 1;
	return 0;
}
