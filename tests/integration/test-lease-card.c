/* SPDX-License-Identifier: MIT */
/*
 * A leased program on a card, as the kernel sees it
 *
 *	amdgpu-sim run --card polaris10,vram=4GiB -- test-lease-card
 *
 * This process has a lease, and allocates memory from the driver directly. Memory within the lease
 * is charged once, when the lease is granted, and does not count as use by other programs. Memory
 * beyond the lease does. The time of the card that its submissions take counts as its tenant's.
 */
#include <amdgpu.h>
#include <amdgpu_drm.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <ringbroker/lease.h>

#include "integration/harness.h"
#include "support/test.h"

#define MIB (1ull << 20)

static struct broker broker;
static struct rbk *admin;

/* Records as of the last update, which may be seconds old. */
struct seen {
	struct rbk_stats_lease lease;
	struct rbk_stats_device device;
	uint64_t leased_ns; /* of the tenant */
};

enum { JOB_MS = 1 }; /* time of a submission on the simulated card */

static void look(uint32_t number, struct seen *ret)
{
	struct rbk_stats_view view;
	struct rbk_stats_lease lease;
	struct rbk_stats_tenant tenant;

	assert_int_equal(rbk_stats_map(admin, RBK_STATS_ALL, 0, &view, NULL), 0);
	assert_true(harness_stats_copy(&view, RBK_STATS_SECTION_DEVICES, RBK_DEVICE_GPU,
				       &ret->device, sizeof(ret->device)));
	ret->lease = (struct rbk_stats_lease){0};
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_LEASES); i++)
		if (harness_stats_copy(&view, RBK_STATS_SECTION_LEASES, i, &lease, sizeof(lease)) &&
		    lease.number == number)
			ret->lease = lease;
	ret->leased_ns = 0;
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_TENANTS); i++)
		if (harness_stats_copy(&view, RBK_STATS_SECTION_TENANTS, i, &tenant,
				       sizeof(tenant)))
			ret->leased_ns += tenant.devices[RBK_DEVICE_GPU].leased_ns;
	rbk_stats_unmap(&view);
}

#define wait_until(number, seen, condition)                                                        \
	do {                                                                                       \
		uint64_t end_ns = harness_now_ns() + harness_slow_ns(40000000000);                 \
                                                                                                   \
		for (;;) {                                                                         \
			look(number, seen);                                                        \
			if (condition)                                                             \
				break;                                                             \
			if (harness_now_ns() > end_ns)                                             \
				fail_msg(                                                          \
					"in vain: %s; seen %llu MiB, outside %llu, budget %llu",   \
					#condition,                                                \
					(unsigned long long)((seen)->lease.seen_bytes >> 20),      \
					(unsigned long long)((seen)->device.memory_outside >> 20), \
					(unsigned long long)((seen)->device.memory_budget >> 20)); \
			harness_sleep_ms(20);                                                      \
		}                                                                                  \
	} while (0)

static amdgpu_bo_handle allocate(amdgpu_device_handle card, uint64_t bytes)
{
	struct amdgpu_bo_alloc_request request = {
		.alloc_size = bytes,
		.phys_alignment = 4096,
		.preferred_heap = AMDGPU_GEM_DOMAIN_VRAM,
	};
	amdgpu_bo_handle buffer;

	assert_int_equal(amdgpu_bo_alloc(card, &request, &buffer), 0);
	return buffer;
}

/* Submit work that takes a millisecond of the card. */
static void submit(amdgpu_device_handle card, amdgpu_context_handle context,
		   amdgpu_bo_handle buffer)
{
	struct amdgpu_cs_ib_info ib = {.ib_mc_address = 0x100000, .size = 16};
	struct amdgpu_cs_request request = {
		.ip_type = AMDGPU_HW_IP_COMPUTE, .number_of_ibs = 1, .ibs = &ib};

	assert_int_equal(amdgpu_bo_list_create(card, 1, &buffer, NULL, &request.resources), 0);
	assert_int_equal(amdgpu_cs_submit(context, 0, &request, 1), 0);
	amdgpu_bo_list_destroy(request.resources);
}

/* Use the card until the broker has seen that, with all that was submitted. */
static void check_time(uint32_t number, amdgpu_device_handle card, amdgpu_bo_handle buffer)
{
	const uint64_t until_ns = harness_now_ns() + harness_slow_ns(40000000000);
	amdgpu_context_handle context;
	uint64_t n_submitted = 0, busy_ns;
	struct seen seen;

	/* The driver tells nothing of a process that has submitted nothing. */
	look(number, &seen);
	assert_true(seen.lease.busy_percent == RBK_STATS_ABSENT);
	assert_true(seen.lease.busy_ns == RBK_STATS_ABSENT);
	assert_int_equal(seen.leased_ns, 0);
	assert_int_equal(amdgpu_cs_ctx_create(card, &context), 0);
	/* A fifth of a list's time, however long this loop takes */
	for (unsigned int i = 0; i < 4; i++) {
		for (unsigned int n = 0; n < 40; n++)
			submit(card, context, buffer);
		n_submitted += 40;
		harness_sleep_ms(200);
	}
	do {
		look(number, &seen);
		assert_true(harness_now_ns() < until_ns);
		harness_sleep_ms(20);
	} while (seen.lease.busy_ns != n_submitted * JOB_MS * 1000000);
	wait_until(number, &seen, seen.lease.busy_percent == 0);
	busy_ns = seen.lease.busy_ns;
	assert_int_equal(busy_ns, n_submitted * JOB_MS * 1000000);
	assert_int_equal(seen.leased_ns, busy_ns);

	/* Drivers may count minutes of work within a second, which is a second at most. */
	for (unsigned int i = 0; i < 100000 / JOB_MS; i++)
		submit(card, context, buffer);
	wait_until(number, &seen, seen.lease.busy_percent == 100);
	wait_until(number, &seen, seen.lease.busy_percent == 0);
	assert_in_range(seen.lease.busy_ns - busy_ns, 1000000, 99000000000);
	assert_int_equal(seen.leased_ns, seen.lease.busy_ns);
	amdgpu_cs_ctx_free(context);
}

TEST(test_seen)
{
	const struct rbk_lease_options options = {.device = RBK_DEVICE_GPU,
						  .max_bytes = 1024 * MIB};
	struct rbk *rbk;
	struct rbk_lease *lease;
	struct rbk_error error;
	struct seen before, seen;
	amdgpu_device_handle card;
	amdgpu_bo_handle first, second;
	uint32_t number, major_version, minor_version;
	int fd;

	/* The simulated driver makes calls of its own in the broker's threads. */
	broker_start(&broker,
		     &(struct broker_options){
			     .is_undisturbed = true,
			     .args = (const char *const[]){"--gpu=auto", "--sandbox=off", NULL}});
	admin = broker_connect_admin(&broker, "admin");
	rbk = broker_connect(&broker, "program");
	if (rbk_lease_open(rbk, &options, &lease, &error))
		fail_msg("%s", error.text);
	number = rbk_lease_number(lease);
	wait_until(number, &before, before.lease.seen_bytes != RBK_STATS_ABSENT);
	assert_int_equal(before.lease.seen_bytes, 0);
	assert_int_equal(before.lease.granted_bytes, 1024 * MIB);

	/* Memory within the lease needs no report of the program. */
	fd = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(amdgpu_device_initialize(fd, &major_version, &minor_version, &card), 0);
	close(fd);
	first = allocate(card, 600 * MIB);
	wait_until(number, &seen, seen.lease.seen_bytes == 600 * MIB);
	assert_false(seen.lease.flags & RBK_STATS_LEASE_OVER);
	wait_until(number, &seen, seen.device.memory_outside <= before.device.memory_outside);
	assert_true(seen.device.memory_budget >= before.device.memory_budget - 64 * MIB);

	check_time(number, card, first);

	/* Memory beyond the lease. */
	second = allocate(card, 700 * MIB);
	wait_until(number, &seen, seen.lease.seen_bytes == 1300 * MIB);
	/* The audit sets the flag once it has seen the excess twice. */
	wait_until(number, &seen, seen.lease.flags & RBK_STATS_LEASE_OVER);
	wait_until(number, &seen,
		   seen.device.memory_outside == before.device.memory_outside + 276 * MIB);

	/* After the lease has ended, all of the process's memory counts as use by other programs.
	 */
	rbk_lease_close(lease);
	rbk_disconnect(rbk);
	wait_until(number, &seen,
		   seen.device.memory_outside == before.device.memory_outside + 1300 * MIB);
	assert_int_equal(seen.lease.number, 0);
	amdgpu_bo_free(first);
	amdgpu_bo_free(second);
	amdgpu_device_deinitialize(card);
	wait_until(number, &seen, seen.device.memory_outside <= before.device.memory_outside);
	rbk_disconnect(admin);
	broker_stop(&broker);
}

TEST_MAIN(NULL, NULL, harness_limit_seconds(120))
