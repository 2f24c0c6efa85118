/* SPDX-License-Identifier: MIT */
/* Queries of device memory and tenants, also to brokers without them. */
#include <string.h>

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/client-fixture.h"
#include "support/test.h"

static struct rbk_plan *make_plan(struct fixture *fixture)
{
	struct rbk_builder *builder = rbk_builder_new("plan");
	unsigned int x = rbk_builder_input(builder, "x", RBK_DTYPE_F32, 0, NULL);
	unsigned int y = rbk_builder_output(builder, "y", RBK_DTYPE_F32, RBK_RANK_INFERRED, NULL);
	struct rbk_plan *plan = NULL;

	rbk_builder_unary(builder, "Relu", x, y);
	assert_int_equal(rbk_plan_new(fixture->rbk, builder, 1, &plan, &fixture->error), 0);
	rbk_builder_free(builder);
	return plan;
}

TEST(test_plan_memory__answers)
{
	struct rbk_plan_memory devices[RBK_MAX_DEVICES];
	uint64_t n_constrained = 0;
	struct rbk_plan *plan;
	unsigned int n = 0;

	FIXTURE(fixture, NULL);
	rbk_plan_free(make_plan(&fixture));
	plan = make_plan(&fixture);
	memset(devices, 0xff, sizeof(devices));
	assert_int_equal(rbk_plan_memory(plan, devices, RBK_MAX_DEVICES, &n, &n_constrained), 0);
	assert_int_equal(n, 2);
	/* The fake puts the plan's id into its answer. */
	assert_int_equal(n_constrained, rbk_plan_id(plan));
	assert_int_not_equal(n_constrained, 0);
	assert_fields(devices[0], (state, RBK_MEMORY_RESIDENT), (tier, RBK_TIER_NONE));
	assert_fields(devices[1], (state, RBK_MEMORY_EVICTED), (tier, RBK_TIER_GTT),
		      (required_bytes, 1), (available_bytes, 2), (resident_bytes, 3),
		      (n_evictions, 4), (n_returns, 5));

	/* No more records are written than there is room for. */
	memset(devices, 0xff, sizeof(devices));
	n = 0;
	assert_int_equal(rbk_plan_memory(plan, devices, 1, &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(devices[0].state, RBK_MEMORY_RESIDENT);
	assert_int_equal(devices[1].state, UINT32_MAX);
	assert_int_equal(rbk_plan_memory(plan, NULL, 0, &n, NULL), 0);
	rbk_plan_free(plan);
}

TEST(test_tenant__answers)
{
	struct rbk_tenant tenant;

	FIXTURE(fixture, NULL);
	assert_int_equal(rbk_tenant(fixture.rbk, &tenant), 0);
	assert_string_equal(tenant.name, "web");
	assert_fields(tenant, (host_bytes.used, 1), (host_bytes.max, 2), (sessions.used, 3));
	assert_true(tenant.sessions.max == UINT64_MAX);
	assert_fields(tenant, (n_evictions, 4), (n_refused, 5), (n_devices, 2),
		      (devices[1].vram.used, 6), (devices[1].vram.max, 7),
		      (devices[1].vram_reserve, 8), (devices[1].vram_high, 9),
		      (devices[1].gtt.used, 10), (devices[1].gtt.max, 11));
}

/*
 * A broker of version 1.0 accepts the client, which does not send requests that it would end the
 * session for.
 */
TEST(test_old_broker__is_not_asked)
{
	struct fake_options options = {.is_old = true};
	struct rbk_plan_memory device;
	struct rbk_tenant tenant;
	struct rbk_plan *plan;
	struct rbk_stats stats;
	unsigned int n = 7;

	FIXTURE(fixture, &options);
	assert_int_equal(rbk_features(fixture.rbk), 0);
	plan = make_plan(&fixture);
	assert_int_equal(rbk_plan_memory(plan, &device, 1, &n, NULL), -EOPNOTSUPP);
	assert_int_equal(n, 7);
	assert_int_equal(rbk_tenant(fixture.rbk, &tenant), -EOPNOTSUPP);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_PLAN_MEMORY), 0);
	assert_int_equal(fake_broker_requests(fixture.fake, RBK_WIRE_TENANT), 0);
	assert_int_equal(rbk_stats(fixture.rbk, &stats), 0);
	rbk_plan_free(plan);
}

TEST(test_answers__wrong)
{
	static const struct {
		enum fake_fault fault;
		uint32_t type;
		int expected;
	} cases[] = {
		{FAKE_DEVICES_17, RBK_WIRE_PLAN_MEMORY, -EPROTO},
		{FAKE_SHORT, RBK_WIRE_PLAN_MEMORY, -EPROTO},
		{FAKE_FDS_TOO_MANY, RBK_WIRE_PLAN_MEMORY, -EPROTO},
		{FAKE_REFUSE, RBK_WIRE_PLAN_MEMORY, -EDQUOT},
		{FAKE_DIE, RBK_WIRE_PLAN_MEMORY, -ECONNRESET},
		{FAKE_DEVICES_17, RBK_WIRE_TENANT, -EPROTO},
		{FAKE_NAME_ENDLESS, RBK_WIRE_TENANT, -EPROTO},
		{FAKE_LONG, RBK_WIRE_TENANT, -EPROTO},
		{FAKE_REFUSE_BARE, RBK_WIRE_TENANT, -EBUSY},
		{FAKE_DIE, RBK_WIRE_TENANT, -ECONNRESET},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake_options options = {.fault = cases[i].fault,
					       .fault_type = cases[i].type};
		struct rbk_plan_memory device = {.state = 77};
		struct rbk_tenant tenant = {.n_devices = 77};
		struct fixture fixture;
		struct rbk_plan *plan;
		unsigned int n = 77;
		int r;

		fixture_begin_connected(&fixture, &options);
		plan = make_plan(&fixture);
		r = cases[i].type == RBK_WIRE_TENANT ? rbk_tenant(fixture.rbk, &tenant)
						     : rbk_plan_memory(plan, &device, 1, &n, NULL);
		if (r != cases[i].expected)
			fail_msg("case %zu: %d instead of %d", i, r, cases[i].expected);
		assert_int_equal(tenant.n_devices, 77);
		assert_int_equal(device.state, 77);
		assert_int_equal(n, 77);
		rbk_plan_free(plan);
		fixture_end(&fixture);
	}
}

static void expect_said(int r, int expected, struct rbk_error *error, const char *said)
{
	assert_int_equal(r, expected);
	if (!strstr(error->text, said))
		fail_msg("\"%s\" does not say \"%s\"", error->text, said);
	error->text[0] = '\0';
}

/* The variants with a sentence pass on the broker's, or say what the broker lacks. */
TEST(test_get__says_why)
{
	static const uint32_t types[] = {RBK_WIRE_DEVICES, RBK_WIRE_STATS, RBK_WIRE_TENANT,
					 RBK_WIRE_PLAN_MEMORY};
	struct rbk_error error = {""};
	struct rbk_plan_memory memory;
	struct rbk_device device;
	struct rbk_tenant tenant;
	struct rbk_stats stats;
	struct rbk_plan *plan;
	unsigned int n;

	for (unsigned int i = 0; i < 5; i++) {
		struct fake_options options = {.is_old = i == 4};
		struct fixture fixture;
		int r;

		if (i < 4) {
			options.fault = FAKE_REFUSE;
			options.fault_type = types[i];
		}
		fixture_begin_connected(&fixture, &options);
		plan = make_plan(&fixture);
		r = rbk_get_devices(fixture.rbk, &device, 1, &n, &error);
		expect_said(r, i == 0 ? -EDQUOT : 0, &error, i == 0 ? "that is too much" : "");
		r = rbk_get_stats(fixture.rbk, &stats, &error);
		expect_said(r, i == 1 ? -EDQUOT : 0, &error, i == 1 ? "that is too much" : "");
		r = rbk_get_tenant(fixture.rbk, &tenant, &error);
		expect_said(r,
			    i == 2   ? -EDQUOT
			    : i == 4 ? -EOPNOTSUPP
				     : 0,
			    &error,
			    i == 2   ? "that is too much"
			    : i == 4 ? "RBK_FEAT_TENANTS"
				     : "");
		r = rbk_get_plan_memory(plan, &memory, 1, &n, NULL, &error);
		expect_said(r,
			    i == 3   ? -EDQUOT
			    : i == 4 ? -EOPNOTSUPP
				     : 0,
			    &error,
			    i == 3   ? "that is too much"
			    : i == 4 ? "RBK_FEAT_RESIDENCY"
				     : "");
		rbk_plan_free(plan);
		fixture_end(&fixture);
	}
}

/* After a loss of the connection, or in a child, these calls fail like all others. */
TEST(test_lost__reports_the_error)
{
	const struct rbk_sqe nop = {.opcode = RBK_OP_NOP};
	struct rbk_plan_memory device;
	struct rbk_tenant tenant;
	struct rbk_plan *plan;
	unsigned int n;
	int status;
	pid_t pid;

	FIXTURE(fixture, NULL);
	plan = make_plan(&fixture);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(rbk_plan_memory(plan, &device, 1, &n, NULL) == -ECHILD &&
				      rbk_tenant(fixture.rbk, &tenant) == -ECHILD &&
				      rbk_sqe_check(fixture.rbk, &nop, NULL) == -ECHILD
			      ? 0
			      : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	fake_broker_kill(fixture.fake);
	assert_int_equal(rbk_tenant(fixture.rbk, &tenant), -ECONNRESET);
	assert_int_equal(rbk_plan_memory(plan, &device, 1, &n, NULL), -ECONNRESET);
	assert_int_equal(rbk_sqe_check(fixture.rbk, &nop, NULL), -ECONNRESET);
	rbk_plan_free(plan);
}
