/* SPDX-License-Identifier: MIT */
/*
 * Fuzzing validate_entry()
 *
 * The input is a sequence of submission entries, validated in a session with plans and arenas of
 * several kinds. Independent checks confirm that an accepted entry is in range. The arenas have no
 * memory but that of argument tables, so that any other access crashes.
 */
#undef NDEBUG /* assertions are the point of this file */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "dispatch/validate.h"
#include "shm/sqe-check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { N_ARENAS = 4, N_PLANS = 3, TABLE_BYTES = 4096 };

static _Alignas(64) uint8_t tables[TABLE_BYTES];
static struct session_arena arenas[N_ARENAS];
static struct session_arena *arena_pointers[N_ARENAS];
static struct session_plan plans[N_PLANS];
static struct session_plan *plan_pointers[N_PLANS];
static struct plan parsed_plans[N_PLANS];
static struct session session;

static void prepare(void)
{
	/*
	 * Arena 1 is immutable, arena 2 has the same inode as arena 0, and arena 3 does not exist.
	 */
	for (unsigned int i = 0; i < N_ARENAS - 1; i++) {
		arenas[i].exec = (struct exec_arena){
			.base = tables,
			.bytes = TABLE_BYTES,
			.immutable = i == 1,
			.is_fixed = true,
			.ino = i == 1 ? 1 : 0,
		};
		arena_pointers[i] = &arenas[i];
	}
	for (unsigned int i = 0; i < N_PLANS; i++) {
		parsed_plans[i].max_count = 1 + i * 7;
		parsed_plans[i].n_bindings = (uint16_t)(i == 2 ? RBK_MAX_REFS : 1 + i * 2);
		for (unsigned int k = 0; k < parsed_plans[i].n_bindings; k++)
			parsed_plans[i].bindings[k] = (struct plan_binding){
				.fixed_bytes = k % 2 ? 16 : 0,
				.row_bytes = k % 2 ? 0 : 8,
				.written = k + 1 == parsed_plans[i].n_bindings,
			};
		plans[i] = (struct session_plan){.plan = &parsed_plans[i], .id = (i + 1) << 16 | i};
		plan_pointers[i] = &plans[i];
	}
	session.arenas = arena_pointers;
	session.n_arenas = N_ARENAS;
	session.plans = plan_pointers;
	session.n_plans = N_PLANS;
	session.features = RBK_FEAT_AFTER;
	/* Table 0 suits the widest plan: inputs from offset 0 on, the output at the end. */
	for (unsigned int i = 0; i < RBK_MAX_REFS; i++)
		((uint64_t *)tables)[i] = RBK_REF(0, i * 64 % (TABLE_BYTES - 64));
	((uint64_t *)tables)[RBK_MAX_REFS - 1] = RBK_REF(0, TABLE_BYTES - 64);
}

static bool is_documented(int res)
{
	return res == 0 || res == -EINVAL || res == -ENOENT || res == -EBADF || res == -EFAULT ||
	       res == -EACCES || res == -ERANGE || res == -EOPNOTSUPP;
}

/*
 * Check that a task's operands lie within their arenas, and that no written operand overlaps
 * another one.
 */
static void check_run(const struct rbk_sqe *sqe, const struct session_plan *plan,
		      const struct exec_ref *refs)
{
	const struct plan *parsed = plan->plan;
	uint64_t n_bytes, n_other;

	assert(plan->id == sqe->plan_id);
	assert(sqe->count >= 1 && sqe->count <= parsed->max_count);
	for (unsigned int i = 0; i < parsed->n_bindings; i++) {
		n_bytes = parsed->bindings[i].fixed_bytes +
			  parsed->bindings[i].row_bytes * sqe->count;
		assert(refs[i].offset % 64 == 0 && refs[i].offset <= TABLE_BYTES - n_bytes);
		assert(!parsed->bindings[i].written || !refs[i].arena->immutable);
		for (unsigned int k = 0; k < parsed->n_bindings && parsed->bindings[i].written;
		     k++) {
			n_other = parsed->bindings[k].fixed_bytes +
				  parsed->bindings[k].row_bytes * sqe->count;
			assert(k == i || refs[i].arena->ino != refs[k].arena->ino ||
			       refs[i].offset + n_bytes <= refs[k].offset ||
			       refs[k].offset + n_other <= refs[i].offset);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct exec_ref refs[RBK_MAX_REFS];
	struct session_plan *plan;
	struct sqe_fault fault;
	struct rbk_sqe sqe;
	int res;

	if (!session.n_plans)
		prepare();
	for (; bytes >= sizeof(sqe); bytes -= sizeof(sqe), data += sizeof(sqe)) {
		memcpy(&sqe, data, sizeof(sqe));
		plan = NULL;
		memset(refs, 0xa5, sizeof(refs));
		res = validate_entry(&session, &sqe, refs, &plan);
		assert(is_documented(res));
		/* The diagnosis gives the same verdict, with a field and a reason. */
		fault.field[0] = fault.reason[0] = '\0';
		assert(dispatch_find_fault(&session, &sqe, false, SQE_ANY_DISTANCE, &fault) == res);
		assert(res == 0 || (fault.field[0] && fault.reason[0]));
		if (res == 0 && sqe.opcode == RBK_OP_RUN)
			check_run(&sqe, plan, refs);
		if (res == 0)
			assert(sqe.opcode < RBK_OP_COUNT && !(sqe.flags & ~RBK_SQE_FLAGS) &&
			       sqe.priority < RBK_PRIORITY_COUNT);
	}
	return 0;
}
