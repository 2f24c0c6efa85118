/* SPDX-License-Identifier: MIT */
/*
 * Rings that an earlier broker made: what of a completion area goes into the next one
 *
 * abi.h defines which completions and entries of an area count. The client has both areas of the
 * earlier broker, and may have made them itself: nothing in them is believed. Each record is copied
 * once, and its entry is validated when it is admitted again. A client that invents records submits
 * entries, as it may do anyway; the checks here are that all of them, and the completions that the
 * client has not consumed, fit into one ring, as they did before.
 *
 * The records are written in the order of their entries, because that is the order of admission:
 * chains and barriers depend on it. Of a chain, the entries that are left follow each other. The
 * link of an entry whose successor is not left, because it was rejected, is cut: another chain
 * may come next.
 *
 * If the earlier broker crashed while it admitted an entry, that entry and those before it get
 * records, too: what is known of a crash stands in records.
 *
 * The states of tasks that had begun move as well: the earlier area is never written, so they are
 * there until those in the new area are complete. So do the failures of entries that others may
 * name.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "session/ring-memory.h"
#include "session/server-private.h"
#include "shm/ring.h"
#include "util/clock.h"
#include "util/error.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* Unfinished entries of an earlier broker's ring, by sq_index */
struct rest {
	struct rbk_task_record *records;
	uint32_t n;
};

const char *ring_restore_check(int fd, uint64_t bytes)
{
	const int seals = fcntl(fd, F_GET_SEALS), sizes = F_SEAL_SHRINK | F_SEAL_GROW;
	struct stat status;
	struct statfs fs;

	if (seals < 0 || fstat(fd, &status) < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return "an area is not an ordinary memfd";
	/* Pages that others can remove would let them delay the thread that reads the area. */
	if ((seals & sizes) != sizes || !(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)))
		return "an area is not sealed with F_SEAL_SHRINK, F_SEAL_GROW and "
		       "F_SEAL_FUTURE_WRITE";
	if (status.st_size < 0 || (uint64_t)status.st_size != bytes)
		return "an area has another size than a ring of so many entries";
	/*
	 * Mapping the area would allocate pages that lack, and freeing it those beyond its end. The
	 * last page may be a huge one.
	 */
	if (lseek(fd, 0, SEEK_HOLE) != (off_t)bytes ||
	    (uint64_t)status.st_blocks * 512 > bytes + HUGE_PAGE_BYTES)
		return "an area is sparse, or has pages beyond its end";
	return NULL;
}

static int compare_records(const void *a, const void *b)
{
	const struct rbk_task_record *left = a, *right = b;

	return (left->sq_index > right->sq_index) - (left->sq_index < right->sq_index);
}

/* Mark the entries of @rest that name one of @n that failed, which are sorted. */
static void mark_after_failed(const struct rest *rest, const struct rbk_task_record *failed,
			      uint32_t n)
{
	for (uint32_t i = 0; i < rest->n; i++) {
		struct rbk_task_record *record = &rest->records[i], key;

		if (!(record->sqe.flags & RBK_SQE_AFTER))
			continue;
		for (unsigned int k = 0; k < RBK_SQE_AFTER_MAX; k++) {
			key.sq_index = record->sq_index - record->sqe.after[k];
			if (record->sqe.after[k] > 0 &&
			    bsearch(&key, failed, n, sizeof(key), compare_records))
				record->flags |= RBK_TASK_AFTER_FAILED;
		}
	}
}

/*
 * Copy the live records, in the order of their entries, and what others tell of the entries that
 * these name. Return: 0; -ENOMEM.
 */
static int rest_init(struct rest *rest, const struct rbk_task_record *records, uint32_t n_entries,
		     const struct rbk_commit *commit)
{
	const uint32_t is_failed = RBK_TASK_TAKEN | RBK_TASK_FAILED;
	struct rbk_task_record record, *failed;
	uint32_t n_failed = 0;

	*rest = (struct rest){.records = malloc(n_entries * sizeof(record))};
	if (!rest->records)
		return error_origin(-ENOMEM);
	for (uint32_t i = 0; i < n_entries; i++) {
		memcpy(&record, &records[i], sizeof(record));
		if (rbk_record_is_live(&record, commit))
			rest->records[rest->n++] = record;
		else if ((record.flags & is_failed) == is_failed)
			rest->records[n_entries - ++n_failed] = record;
	}
	qsort(rest->records, rest->n, sizeof(record), compare_records);
	failed = rest->records + n_entries - n_failed;
	qsort(failed, n_failed, sizeof(record), compare_records);
	mark_after_failed(rest, failed, n_failed);
	return 0;
}

static bool rest_has(const struct rest *rest, uint64_t sq_index)
{
	const struct rbk_task_record key = {.sq_index = sq_index};

	return bsearch(&key, rest->records, rest->n, sizeof(key), compare_records) != NULL;
}

/* Return the record of the @i-th entry as the next broker's. */
static struct rbk_task_record rest_next(const struct rest *rest, uint32_t i,
					const struct rbk_commit *commit, uint64_t chain)
{
	const uint32_t kept = RBK_TASK_TAKEN | RBK_TASK_CANCELLED | RBK_TASK_BEGUN |
			      RBK_TASK_TABLE | RBK_TASK_UNDO | RBK_TASK_AFTER_FAILED;
	struct rbk_task_record record = rest->records[i];
	const bool has_successor =
		i + 1 < rest->n
			? rest->records[i + 1].sq_index == record.sq_index + 1
			: commit->sq_head == record.sq_index + 1 && (chain & RBK_COMMIT_CHAIN_OPEN);

	record.flags &= kept;
	record.cq_index = 0;
	record.pad = 0;
	memset(record.reserved, 0, sizeof(record.reserved));
	if (record.cancel_index >= commit->sq_head || rest_has(rest, record.cancel_index))
		record.flags &= ~RBK_TASK_CANCELLED;
	if (!has_successor)
		record.sqe.flags &= (uint8_t)~RBK_SQE_LINK;
	return record;
}

/*
 * Copy the states of a task that had begun, from @old, to the first units that are free, of which
 * @next is the first. Without states, such a task cannot run again.
 * Return: the first unit that is free afterwards.
 */
static unsigned int move_undo(const struct session_ring *ring, const struct rbk_cq_area *old,
			      struct rbk_task_record *record, unsigned int next)
{
	const unsigned int first = record->undo_first, n = record->n_undo;

	if (!ring->undo || !(record->flags & RBK_TASK_BEGUN) || n == 0 ||
	    n > RBK_UNDO_UNITS - next || first > RBK_UNDO_UNITS - n)
		record->flags &= ~RBK_TASK_UNDO;
	if (!(record->flags & RBK_TASK_UNDO)) {
		record->undo_first = record->n_undo = 0;
		return next;
	}
	memcpy(ring->undo + (size_t)next * RBK_UNDO_UNIT_BYTES,
	       rbk_ring_undo(old, ring->n_entries) + (size_t)first * RBK_UNDO_UNIT_BYTES,
	       (size_t)n * RBK_UNDO_UNIT_BYTES);
	record->undo_first = (uint16_t)next;
	return next + n;
}

/*
 * Make records of the entries up to the one during whose admission the earlier broker crashed, as
 * if it had admitted them. @chain is the state of the chain before and after them.
 */
static void take_entries(const struct session_ring *ring, const struct rbk_cq_area *old,
			 struct rest *rest, struct rbk_commit *commit, uint64_t *chain)
{
	const uint64_t broken = RBK_COMMIT_CHAIN_OPEN | RBK_COMMIT_CHAIN_BROKEN;
	/* The client may still write there. */
	const uint64_t crash_end = __atomic_load_n(&old->crash_end, __ATOMIC_RELAXED);
	const uint64_t first = commit->sq_head, n = crash_end - first;
	const uint32_t n_waiting = rbk_ring_observe(&ring->sq->sq_tail) - (uint32_t)first;
	bool is_broken = (*chain & broken) == broken;
	struct rbk_task_record *record;

	if (crash_end == 0 || n == 0 || n > n_waiting || n > ring->n_entries - rest->n)
		return;
	for (uint64_t i = 0; i < n; i++) {
		record = &rest->records[rest->n++];
		*record = (struct rbk_task_record){
			.sq_index = first + i,
			.flags = is_broken ? RBK_TASK_TAKEN | RBK_TASK_CANCELLED : RBK_TASK_TAKEN,
			.cancel_index = first - 1,
			.n_crashes = i + 1 == n,
		};
		rbk_sqe_load(&record->sqe, &ring->sq->sqes[record->sq_index & ring->mask]);
		record->admit_ns = record->sqe.deadline_us ? clock_now_ns() : 0;
		*chain = record->sqe.flags & RBK_SQE_LINK ? RBK_COMMIT_CHAIN_OPEN : 0;
		is_broken = is_broken && *chain;
	}
	*chain |= is_broken ? RBK_COMMIT_CHAIN_BROKEN : 0;
	commit->sq_head += n;
}

/*
 * Copy the failures that count: an entry that is admitted again may succeed. The client may have
 * invented them: each is used only to find out whether one of its own entries has failed.
 */
static void move_failed(const struct session_ring *ring, const struct rbk_cq_area *old,
			const struct rest *rest, const struct rbk_commit *commit)
{
	const uint64_t *failed = rbk_ring_failed(old, ring->n_entries);

	for (uint32_t i = 0; i < 2 * ring->n_entries; i++) {
		/* The client may write there meanwhile. */
		const uint64_t end = __atomic_load_n(&failed[i], __ATOMIC_RELAXED);

		if (end > 0 && end <= commit->sq_head && !rest_has(rest, end - 1))
			ring->failed[i] = end;
	}
}

static int unsuitable(struct session_ring *ring, const char *why)
{
	ring->why = why;
	return RING_E_UNSUITABLE;
}

/* Fill the new area from the old one, of which @rest was copied. */
static int fill(struct session_ring *ring, const struct rbk_cq_area *old, const struct rest *rest,
		const struct rbk_commit *commit, uint64_t chain)
{
	const uint32_t sq_head = (uint32_t)commit->sq_head, cq_tail = (uint32_t)commit->cq_tail;
	const uint32_t n_waiting = rbk_ring_observe(&ring->sq->sq_tail) - sq_head;
	const uint32_t n_unread = cq_tail - rbk_ring_observe(&ring->sq->cq_head);
	unsigned int n_undo = 0;

	if (n_waiting > ring->n_entries || n_unread > ring->n_entries ||
	    rest->n > ring->n_entries - n_unread)
		return unsuitable(ring, "its indices and records do not fit together");
	for (uint32_t i = cq_tail - n_unread; i != cq_tail; i++)
		ring->cq->cqes[i & ring->mask] = old->cqes[i & ring->mask];
	for (uint32_t i = 0; i < rest->n; i++) {
		ring->records[i] = rest_next(rest, i, commit, chain);
		n_undo = move_undo(ring, old, &ring->records[i], n_undo);
	}
	if (ring->failed)
		move_failed(ring, old, rest, commit);

	ring->cq->commit_base = *commit;
	ring->cq->commit = rbk_commit_word(sq_head, cq_tail, chain);
	ring->cq->sq_head = ring->sq_head = sq_head;
	ring->cq->cq_tail = ring->cq_tail = cq_tail;
	ring->cq_head_seen = cq_tail - n_unread;
	ring->n_restored = rest->n;
	ring->undo_taken = rbk_undo_mask(0, n_undo);
	return 0;
}

int ring_restore(struct session_ring *ring)
{
	const struct rbk_cq_area *old;
	struct rbk_commit commit;
	struct rest rest;
	uint64_t chain;
	int r;

	old = mmap(NULL, ring->cq_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, ring->from_fd, 0);
	if (old == MAP_FAILED)
		return error_origin(-errno);
	chain = rbk_commit_load(old, &commit);
	r = rest_init(&rest, rbk_ring_records(old, ring->n_entries), ring->n_entries, &commit);
	if (r == 0) {
		take_entries(ring, old, &rest, &commit, &chain);
		r = fill(ring, old, &rest, &commit, chain);
	}
	free(rest.records);
	munmap((void *)old, ring->cq_bytes);
	return r;
}
