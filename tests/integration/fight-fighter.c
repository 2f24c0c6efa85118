/* SPDX-License-Identifier: MIT */
/*
 * A fighter: a client that does everything that clients may do, at random
 *
 * It makes and removes plans, runs them with every strategy, waits for memory and cancels,
 * prefetches and evicts, and reconnects with tasks in flight. It records each entry in a slot. A
 * second completion, a missing completion or a wrong result code therefore shows.
 *
 * A tenant with a reserve has a home plan that fits into it, and claims it from time to time. The
 * only fighter of a tenant first evicts all of its plans, so that the PREFETCH must succeed. If the
 * tenant has several fighters, each claims with WAIT_MEMORY, and the wait must end within
 * FIGHT_BOUND_NS.
 */
#include "integration/fight.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integration/fight-plan.h"
#include "integration/harness.h"

enum {
	MAX_PLANS = 6,
	N_SLOTS = 16,
	MAX_IN_FLIGHT = 6, /* without CANCEL entries */
	N_ENTRIES = 64,
	CARD_SIDE = 2048, /* parts of 16 MiB */
	SOFTWARE_K = 1024,
	SOFTWARE_SUM = 131072, /* parts of 512 KiB */
	SOFTMAX_N = 256,
	/* products of more parts stay off the CPU, which would pack a copy of each */
	UNPINNED_PARTS = 2,
};

#define CARD_CONSTANTS_BYTES     (24u << 20)
#define SOFTWARE_CONSTANTS_BYTES (16u << 20)

/* An entry that has not completed. */
struct slot {
	bool is_used, is_waiting, is_cancelled, has_lost_plan;
	bool may_be_evicted; /* by EVICT: one was in flight together with this PREFETCH */
	uint8_t opcode, strategy;
	uint32_t n_rows;
	uint64_t serial, since_ns, patience_ns;
	struct fight_plan *plan;
	float *y;
};

struct fighter {
	struct fight *fight;
	struct fight_score *score;
	const struct fight_tenant *tenant;
	unsigned int member;
	uint64_t random, serial;
	struct rbk *rbk;
	struct rbk_ring *ring;
	struct rbk_arena *constants, *tensors;
	uint64_t in_refs[2]; /* rows of every input */
	struct fight_plan plans[MAX_PLANS];
	struct slot slots[N_SLOTS];
	unsigned int n_used;
	int last_res; /* result of the entry that await() waits for */
	uint64_t last_serial;
	uint64_t target; /* serial of the next CANCEL's target */
};

static uint32_t below(struct fighter *f, uint32_t n)
{
	return (uint32_t)(harness_random(&f->random) >> 16) % n;
}

#define FAIL(f, ...) fight_fail((f)->fight, (f)->member, __VA_ARGS__)

/* ---- Completions ---- */

static void forget_plan(struct slot *slot)
{
	if (slot->plan && --slot->plan->n_in_flight == 0 && !slot->plan->plan)
		slot->plan->is_used = false;
}

/* Return true if an entry may complete with @res. Its plan may have been removed since. */
static bool is_allowed(const struct fighter *f, const struct slot *slot, int res)
{
	const bool is_bound =
		slot->plan && (slot->plan->is_pinned || slot->strategy == RBK_STRATEGY_ONLY_GPU ||
			       slot->strategy == RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU));

	switch (res) {
	case 0:
		return true;
	case -ENOMEM:
		return slot->opcode == RBK_OP_PREFETCH || (slot->opcode == RBK_OP_RUN && is_bound);
	case -ENODEV:
		/* The plan is pinned to one device, the entry names another. */
		if (f->fight->may_be_lost)
			return slot->opcode == RBK_OP_RUN && is_bound;
		return slot->opcode == RBK_OP_RUN && slot->plan->is_pinned &&
		       slot->strategy == RBK_STRATEGY_ONLY_CPU;
	case -ECANCELED:
		return slot->is_cancelled || slot->has_lost_plan || slot->may_be_evicted;
	case -ENOENT:
		return slot->opcode == RBK_OP_CANCEL || slot->has_lost_plan;
	case -EALREADY:
		return slot->opcode == RBK_OP_CANCEL;
	case -EIO:
		return f->fight->may_be_lost &&
		       (slot->opcode == RBK_OP_PREFETCH || slot->opcode == RBK_OP_EVICT ||
			(slot->opcode == RBK_OP_RUN && is_bound));
	default:
		return false;
	}
}

static void check_result(struct fighter *f, const struct slot *slot, const struct rbk_cqe *cqe)
{
	const char *wrong;

	if (slot->strategy == RBK_STRATEGY_ONLY_GPU && cqe->device == RBK_DEVICE_CPU)
		FAIL(f, "a task for the GPU alone ran on the CPU");
	if (slot->plan->is_pinned && cqe->device == RBK_DEVICE_CPU)
		FAIL(f, "a pinned plan ran on the CPU");
	f->score->n_results++;
	f->score->n_on_gpu += cqe->device == RBK_DEVICE_GPU;
	f->score->n_partitioned += (cqe->flags & RBK_CQE_PARTITIONED) != 0;
	if (f->fight->is_card &&
	    (cqe->device != RBK_DEVICE_CPU || cqe->flags & RBK_CQE_PARTITIONED))
		return;
	f->score->n_checked++;
	wrong = fight_check(slot->plan, f->constants, slot->y, slot->n_rows, &f->random);
	if (wrong)
		FAIL(f, "%s: %u parts of %u x %u, %u rows, on device %u, reason %s", wrong,
		     slot->plan->n_parts, slot->plan->k, slot->plan->n, slot->n_rows, cqe->device,
		     rbk_reason_name(cqe->reason));
}

static void complete(struct fighter *f, const struct rbk_cqe *cqe)
{
	unsigned int index = (unsigned int)(cqe->user_data % N_SLOTS);
	struct slot *slot = &f->slots[index];

	if (!slot->is_used || slot->serial != cqe->user_data)
		FAIL(f, "entry %llu completes, which is not in flight",
		     (unsigned long long)cqe->user_data);
	if (!is_allowed(f, slot, cqe->res))
		FAIL(f, "opcode %u with strategy %u completes with %s (pinned: %d)", slot->opcode,
		     slot->strategy, strerror(-cqe->res), slot->plan && slot->plan->is_pinned);
	if (slot->opcode == RBK_OP_RUN && cqe->res == 0)
		check_result(f, slot, cqe);
	f->score->n_tasks++;
	f->score->n_refused += cqe->res == -ENOMEM;
	f->score->n_cancelled += cqe->res == -ECANCELED;
	if (slot->serial == f->last_serial)
		f->last_res = cqe->res;
	forget_plan(slot);
	slot->is_used = false;
	f->n_used--;
}

/* Take all completions that are there, or wait for one until the timeout. */
static void pump(struct fighter *f, uint64_t timeout_ns)
{
	const struct rbk_cqe *cqe;
	int r;

	while ((r = rbk_wait_cqe_timeout(f->ring, &cqe, timeout_ns)) == 0) {
		struct rbk_cqe copy = *cqe;

		rbk_cqe_seen(f->ring, cqe);
		complete(f, &copy);
		timeout_ns = 0;
		if (f->n_used == 0)
			return;
	}
	if (r != -ETIME)
		FAIL(f, "waiting ends with %s", strerror(-r));
}

/* ---- Entries ---- */

static void submit(struct fighter *f)
{
	int r = rbk_submit(f->ring);

	if (r < 0)
		FAIL(f, "submitting ends with %s", strerror(-r));
}

static void lose_patience(struct fighter *f, bool at_once);

/*
 * Wait for a free slot. Some slots are kept for CANCEL, because all other entries may be waiting
 * for memory.
 */
static void wait_for_slot(struct fighter *f, uint8_t opcode)
{
	while (opcode != RBK_OP_CANCEL && f->n_used >= MAX_IN_FLIGHT) {
		submit(f);
		lose_patience(f, false);
		pump(f, 1000000);
	}
	while (f->n_used == N_SLOTS)
		pump(f, 1000000);
}

/*
 * Mark PREFETCH entries that an EVICT of the same plan may cancel. The EVICT does so whichever of
 * the two was submitted first.
 */
static void expect_eviction(struct fighter *f, struct slot *slot)
{
	const uint8_t opcode = slot->opcode;

	if (opcode != RBK_OP_PREFETCH && opcode != RBK_OP_EVICT)
		return;
	for (unsigned int i = 0; i < N_SLOTS; i++) {
		struct slot *other = &f->slots[i];

		if (!other->is_used || other->plan != slot->plan)
			continue;
		if (opcode == RBK_OP_EVICT && other->opcode == RBK_OP_PREFETCH)
			other->may_be_evicted = true;
		if (opcode == RBK_OP_PREFETCH && other->opcode == RBK_OP_EVICT)
			slot->may_be_evicted = true;
	}
}

static struct slot *put(struct fighter *f, uint8_t opcode, struct fight_plan *plan,
			uint8_t strategy, bool is_waiting)
{
	unsigned int index = 0;
	struct rbk_sqe *sqe;
	struct slot *slot;

	wait_for_slot(f, opcode);
	while (f->slots[index].is_used)
		index++;
	slot = &f->slots[index];
	*slot = (struct slot){.is_used = true,
			      .opcode = opcode,
			      .strategy = strategy,
			      .plan = plan,
			      .is_waiting = is_waiting,
			      .y = slot->y,
			      .serial = ++f->serial * N_SLOTS + index,
			      .since_ns = harness_now_ns(),
			      .patience_ns = (20 + below(f, 180)) * 1000000ull};
	f->n_used++;
	if (plan)
		plan->n_in_flight++;
	expect_eviction(f, slot);
	sqe = rbk_get_sqe(f->ring);
	if (!sqe)
		FAIL(f, "the ring is full, or lost");
	switch (opcode) {
	case RBK_OP_PREFETCH:
		rbk_prep_prefetch(sqe, plan->id);
		break;
	case RBK_OP_EVICT:
		rbk_prep_evict(sqe, plan->id);
		break;
	case RBK_OP_RUN: {
		const uint64_t refs[] = {f->in_refs[plan->kind == FIGHT_SUMS],
					 rbk_ref(f->tensors, slot->y)};

		slot->n_rows = 1 + below(f, FIGHT_ROWS);
		memset(slot->y, 0xff, slot->n_rows * fight_row_out_bytes(plan));
		rbk_prep_run(sqe, plan->id, slot->n_rows, refs, 2);
		break;
	}
	default:
		rbk_prep_cancel(sqe, f->target);
		break;
	}
	rbk_sqe_set_strategy(sqe, strategy);
	rbk_sqe_set_data64(sqe, slot->serial);
	if (is_waiting)
		rbk_sqe_set_wait_memory(sqe);
	return slot;
}

/*
 * Cancel entries that have waited too long for memory, or all waiting entries if @at_once. Other
 * entries must complete in time.
 */
static void lose_patience(struct fighter *f, bool at_once)
{
	for (unsigned int i = 0; i < N_SLOTS; i++) {
		struct slot *slot = &f->slots[i];
		uint64_t age_ns = harness_now_ns() - slot->since_ns, serial = slot->serial;

		if (!slot->is_used)
			continue;
		if (slot->is_waiting && !slot->is_cancelled &&
		    (at_once || age_ns > slot->patience_ns)) {
			slot->is_cancelled = true;
			f->target = serial;
			put(f, RBK_OP_CANCEL, NULL, RBK_STRATEGY_AUTO, false);
			submit(f);
		} else if (age_ns > harness_slow_ns(FIGHT_BOUND_NS)) {
			FAIL(f,
			     "opcode %u with strategy %u has not completed (waits: %d, cancelled: "
			     "%d)",
			     slot->opcode, slot->strategy, slot->is_waiting, slot->is_cancelled);
		}
	}
}

static void drain(struct fighter *f)
{
	while (f->n_used > 0) {
		lose_patience(f, true);
		pump(f, 5000000);
	}
}

/*
 * Submit one entry and wait for its completion; other entries may be in flight. Return: its result.
 */
static int await(struct fighter *f, uint8_t opcode, struct fight_plan *plan, uint8_t strategy,
		 bool is_waiting)
{
	struct slot *slot;
	uint64_t start_ns;

	slot = put(f, opcode, plan, strategy, is_waiting);
	f->last_serial = slot->serial;
	slot->patience_ns = UINT64_MAX;
	f->last_res = 1;
	submit(f);
	start_ns = harness_now_ns();
	while (f->last_res == 1) {
		pump(f, 5000000);
		lose_patience(f, false);
		if (harness_now_ns() - start_ns > harness_slow_ns(FIGHT_BOUND_NS))
			FAIL(f, "opcode %u is waited for in vain", opcode);
	}
	return f->last_res;
}

/* ---- Actions ---- */

static void shape(struct fighter *f, struct fight_plan *plan)
{
	uint32_t kind = below(f, 8);

	if (f->fight->is_large) {
		*plan = (struct fight_plan){
			.kind = FIGHT_PRODUCTS, .k = CARD_SIDE, .n = CARD_SIDE, .is_pinned = true};
		/* From half a gigabyte to three; one plan in four is small. */
		plan->n_parts = below(f, 4) ? 32 + below(f, 161) : 1 + below(f, 12);
	} else if (kind < (f->fight->has_graphs ? 2 : 4)) {
		*plan = (struct fight_plan){
			.kind = FIGHT_PRODUCTS, .k = SOFTWARE_K, .n = below(f, 2) ? 256 : 1024};
		plan->n_parts = 1 + below(f, 1 + below(f, plan->n == 256 ? 24 : 15));
		plan->is_pinned = plan->n_parts > UNPINNED_PARTS;
	} else if (kind < 7) {
		*plan = (struct fight_plan){.kind = FIGHT_SUMS, .k = 1, .n = SOFTWARE_SUM};
		plan->n_parts = f->fight->has_graphs ? 96 + below(f, FIGHT_MAX_PARTS - 95)
						     : 2 + below(f, 1 + below(f, 119));
	} else {
		*plan = (struct fight_plan){.kind = FIGHT_SOFTMAX, .k = SOFTWARE_K, .n = SOFTMAX_N};
		plan->n_parts = 1 + below(f, 4);
		plan->is_pinned = plan->n_parts > UNPINNED_PARTS;
	}
}

static void place_parts(struct fighter *f, struct fight_plan *plan)
{
	uint64_t places = (rbk_arena_bytes(f->constants) - fight_part_bytes(plan)) / RBK_REF_ALIGN;
	/* Many places: plans seldom share a part. Few places: plans share parts. */
	uint64_t step = below(f, 3) ? 1 : places / 8;

	for (uint32_t i = 0; i < plan->n_parts; i++)
		plan->offsets[i] = below(f, (uint32_t)(places / step)) * step * RBK_REF_ALIGN;
}

static struct fight_plan *make(struct fighter *f, struct fight_plan *plan)
{
	struct rbk_error error = {""};
	int r;

	place_parts(f, plan);
	r = fight_plan_new(f->rbk, plan, f->constants, &error);
	if (r == -EDQUOT) {
		f->score->n_plans_refused++;
		return NULL;
	}
	if (r)
		FAIL(f, "a plan is refused: %s", error.text);
	plan->is_used = true;
	f->score->n_plans++;
	return plan;
}

static void add_plan(struct fighter *f)
{
	for (unsigned int i = 1; i < MAX_PLANS; i++) {
		if (f->plans[i].is_used)
			continue;
		shape(f, &f->plans[i]);
		make(f, &f->plans[i]);
		return;
	}
}

static void remove_plan(struct fighter *f, struct fight_plan *plan)
{
	if (!plan->plan || plan->is_home)
		return;
	for (unsigned int i = 0; i < N_SLOTS; i++)
		if (f->slots[i].is_used && f->slots[i].plan == plan)
			f->slots[i].has_lost_plan = true;
	plan->plan = rbk_plan_free(plan->plan);
	plan->is_used = plan->n_in_flight > 0;
}

static struct fight_plan *any_plan(struct fighter *f)
{
	for (unsigned int i = 0; i < MAX_PLANS; i++) {
		struct fight_plan *plan = &f->plans[below(f, MAX_PLANS)];

		if (plan->plan)
			return plan;
	}
	return NULL;
}

static void run(struct fighter *f)
{
	static const uint8_t strategies[] = {RBK_STRATEGY_AUTO,
					     RBK_STRATEGY_AUTO,
					     RBK_STRATEGY_PREFER_GPU,
					     RBK_STRATEGY_ONLY_GPU,
					     RBK_STRATEGY_ONLY_CPU,
					     RBK_STRATEGY_PREFER_CPU,
					     RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU)};
	struct fight_plan *plan = any_plan(f);

	for (uint32_t i = 0, n = 1 + below(f, 3); plan && i < n; i++)
		put(f, RBK_OP_RUN, plan, strategies[below(f, sizeof(strategies))],
		    below(f, 4) == 0);
	submit(f);
}

static void move(struct fighter *f, uint8_t opcode)
{
	struct fight_plan *plan = any_plan(f);

	if (plan)
		put(f, opcode, plan,
		    below(f, 2) ? RBK_STRATEGY_AUTO : RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU),
		    opcode == RBK_OP_PREFETCH && below(f, 2));
	submit(f);
}

/*
 * Wait until the broker knows that the fighter's former life has ended, if it was killed: what that
 * session has and has asked for counts for its tenant until then.
 */
static void await_former_end(struct fighter *f)
{
	enum { SESSIONS = 2 }; /* the fighter's and the watcher's */
	const uint64_t start_ns = harness_now_ns();
	struct rbk_tenant tenant;
	int r;

	while (!(r = rbk_tenant(f->rbk, &tenant)) && tenant.sessions.used > SESSIONS) {
		if (harness_now_ns() - start_ns > harness_slow_ns(FIGHT_BOUND_NS))
			FAIL(f, "a session of a killed process does not end");
		pump(f, 1000000);
	}
	if (r)
		FAIL(f, "rbk_tenant(): %s", strerror(-r));
}

/* Claim the tenant's reserve, which the broker must grant. */
static void claim(struct fighter *f)
{
	struct fight_plan *home = &f->plans[0];
	struct rbk_plan_memory memory[2];
	uint64_t start_ns, took_ns;
	unsigned int n;
	int res;

	/* A card that is reset may not have the reserve at once. */
	if (!home->plan || f->fight->may_be_lost)
		return;
	if (f->tenant->is_alone) {
		await_former_end(f);
		drain(f);
		for (unsigned int i = 0; i < MAX_PLANS; i++)
			if (f->plans[i].plan)
				await(f, RBK_OP_EVICT, &f->plans[i], RBK_STRATEGY_AUTO, false);
	}
	if (rbk_plan_memory(home->plan, memory, 2, &n, NULL) || n < 2)
		FAIL(f, "nothing is known of a plan");
	if (memory[RBK_DEVICE_GPU].required_bytes > f->tenant->reserve_bytes)
		FAIL(f, "the home plan needs %llu bytes, more than the reserve",
		     (unsigned long long)memory[RBK_DEVICE_GPU].required_bytes);
	start_ns = harness_now_ns();
	res = await(f, RBK_OP_PREFETCH, home, RBK_STRATEGY_DEVICE(RBK_DEVICE_GPU),
		    !f->tenant->is_alone);
	if (res)
		FAIL(f, "its reserve is denied: %s", strerror(-res));
	took_ns = harness_now_ns() - start_ns;
	if (took_ns > f->score->longest_claim_ns)
		f->score->longest_claim_ns = took_ns;
	f->score->n_claims++;
	/* The plan stays resident as long as the tenant requests nothing else. */
	for (unsigned int i = 0; f->tenant->is_alone && i < 3; i++) {
		res = await(f, RBK_OP_RUN, home, RBK_STRATEGY_ONLY_GPU, false);
		if (res)
			FAIL(f, "its reserve is taken away: %s", strerror(-res));
		harness_sleep_ms(below(f, 10));
	}
}

static void step(struct fighter *f)
{
	switch (below(f, 16)) {
	case 0:
	case 1:
		add_plan(f);
		break;
	case 2:
		remove_plan(f, &f->plans[below(f, MAX_PLANS)]);
		break;
	case 3:
	case 4:
		move(f, RBK_OP_PREFETCH);
		break;
	case 5:
		move(f, RBK_OP_EVICT);
		break;
	case 6:
		if (below(f, 2))
			claim(f);
		break;
	case 7:
		harness_sleep_ms(below(f, 5));
		break;
	default:
		run(f);
		break;
	}
	if (f->n_used > 0)
		pump(f, below(f, 3000) * 1000);
	lose_patience(f, false);
}

/* ---- A session ---- */

static void make_tensors(struct fighter *f)
{
	const uint32_t n_in[2] = {f->fight->is_large ? CARD_SIDE : SOFTWARE_K, SOFTWARE_SUM};
	const uint32_t n_out = f->fight->is_large ? CARD_SIDE : SOFTWARE_SUM;
	struct rbk_error error = {""};

	if (rbk_arena_new(f->rbk,
			  (n_in[0] + n_in[1] + (uint64_t)n_out * N_SLOTS + 256) * FIGHT_ROWS *
				  sizeof(float),
			  &f->tensors, &error))
		FAIL(f, "no arena: %s", error.text);
	for (unsigned int i = 0; i < 2; i++) {
		float *x = rbk_arena_alloc(f->tensors, n_in[i] * FIGHT_ROWS * sizeof(float));

		for (uint32_t row = 0; row < FIGHT_ROWS; row++)
			for (uint32_t k = 0; k < n_in[i]; k++)
				x[row * n_in[i] + k] = fight_input(row, k);
		f->in_refs[i] = rbk_ref(f->tensors, x);
	}
	for (unsigned int i = 0; i < N_SLOTS; i++) {
		f->slots[i].y = rbk_arena_alloc(f->tensors, n_out * FIGHT_ROWS * sizeof(float));
		if (!f->slots[i].y)
			FAIL(f, "the arena is too small");
	}
}

static void begin(struct fighter *f)
{
	struct fight_plan *home = &f->plans[0];
	struct rbk_error error = {""};

	f->rbk = fight_connect(f->fight, f->member, "fighter");
	if (fight_constants_new(
		    f->rbk, f->fight->is_large ? CARD_CONSTANTS_BYTES : SOFTWARE_CONSTANTS_BYTES,
		    &f->constants, &error))
		FAIL(f, "no constants: %s", error.text);
	make_tensors(f);
	if (rbk_ring_new(f->rbk, N_ENTRIES, &f->ring, &error))
		FAIL(f, "no ring: %s", error.text);
	if (f->tenant->home_parts == 0)
		return;
	*home = (struct fight_plan){.kind = FIGHT_PRODUCTS,
				    .is_pinned = true,
				    .is_home = true,
				    .n_parts = f->tenant->home_parts};
	home->k = f->fight->is_large ? CARD_SIDE : SOFTWARE_K;
	home->n = f->fight->is_large ? CARD_SIDE : SOFTWARE_K;
	if (!make(f, home))
		home->plan = NULL;
	if (below(f, 2))
		claim(f);
}

/* End the session, perhaps with tasks in flight, whose completions are lost. */
static void end(struct fighter *f)
{
	bool is_orderly = below(f, 2);

	for (unsigned int i = 0; i < MAX_PLANS; i++)
		if (is_orderly || f->n_used == 0)
			f->plans[i].plan = rbk_plan_free(f->plans[i].plan);
	if (is_orderly)
		rbk_ring_free(f->ring);
	f->rbk = rbk_disconnect(f->rbk);
	for (unsigned int i = 0; i < MAX_PLANS; i++)
		rbk_plan_free(f->plans[i].plan);
	if (!is_orderly)
		rbk_ring_free(f->ring);
	rbk_arena_free(f->tensors);
	rbk_arena_free(f->constants);
	memset(f->plans, 0, sizeof(f->plans));
	memset(f->slots, 0, sizeof(f->slots));
	f->n_used = 0;
}

int fight_fighter(struct fight *fight, unsigned int member)
{
	struct fighter f = {
		.fight = fight,
		.score = &fight->scores[member],
		.tenant = &fight->tenants[fight_tenant_of(member)],
		.member = member,
	};

	f.score->n_lives++;
	f.random =
		(fight->seed + member * 1000003ull + f.score->n_lives) * 0x9e3779b97f4a7c15ull | 1;
	for (unsigned int i = 0; i < 8; i++)
		harness_random(&f.random);
	begin(&f);
	while (!fight->stop) {
		step(&f);
		if (fight->pause) {
			drain(&f);
			f.score->is_quiet = true;
			while (fight->pause && !fight->stop)
				harness_sleep_ms(2);
			f.score->is_quiet = false;
		}
		if (below(&f, 400) == 0) {
			end(&f);
			begin(&f);
		}
	}
	drain(&f);
	end(&f);
	return 0;
}
