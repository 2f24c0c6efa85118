/* SPDX-License-Identifier: MIT */
/*
 * Checks of entries before they are submitted
 *
 * shm/sqe-check.h has the rules, which are those of the broker. The library knows the plans and
 * arenas that it has made itself; it does not know the sizes of tensors whose shape the broker
 * inferred, nor the entries that were submitted before.
 */
#include <errno.h>

#include "libclient/private.h"
#include "shm/sqe-check.h"

#define container_of_known(known_, type) \
	((const type *)((const char *)(known_)-offsetof(type, known)))

void client_know(struct rbk *rbk, struct client_known **list, struct client_known *known,
		 uint32_t id, bool is_sealed, const unsigned char *data)
{
	if (client_is_child(rbk))
		return;
	pthread_mutex_lock(&rbk->lock);
	known->id = id;
	known->is_sealed = is_sealed;
	known->data = data;
	known->is_known = true;
	if (!known->link) {
		known->next = *list;
		known->link = list;
		if (known->next)
			known->next->link = &known->next;
		*list = known;
	}
	pthread_mutex_unlock(&rbk->lock);
}

void client_unknow(struct rbk *rbk, struct client_known *known)
{
	/* In a child, a thread that does not exist there may hold the lock for ever. */
	if (client_is_child(rbk) || !known->is_known)
		return;
	pthread_mutex_lock(&rbk->lock);
	*known->link = known->next;
	if (known->next)
		known->next->link = known->link;
	known->link = NULL;
	known->is_known = false;
	pthread_mutex_unlock(&rbk->lock);
}

static const struct client_known *find(const struct client_known *known, uint32_t id)
{
	while (known && known->id != id)
		known = known->next;
	return known;
}

static bool find_plan(const void *context, uint32_t id, struct sqe_plan *ret)
{
	const struct rbk *rbk = context;
	const struct client_known *known = find(rbk->plans, id);
	const struct rbk_plan *plan;

	if (!known)
		return false;
	plan = container_of_known(known, struct rbk_plan);
	*ret = (struct sqe_plan){
		.plan = plan,
		.max_count = plan->info.max_count,
		.n_refs = plan->info.n_refs,
	};
	return true;
}

static bool find_arena(const void *context, uint32_t id, struct sqe_arena *ret)
{
	const struct rbk *rbk = context;
	const struct client_known *known = find(rbk->arenas, id);

	if (!known || id == RBK_REF_ARENA(RBK_REF_INVALID))
		return false;
	*ret = (struct sqe_arena){
		.bytes = container_of_known(known, struct rbk_arena)->bytes,
		.is_immutable = known->is_sealed,
		.memory = {id},
		.base = known->data,
	};
	return true;
}

static void find_binding(const void *context, uint32_t index, uint32_t count,
			 struct sqe_binding *ret)
{
	const struct rbk_plan *plan = context;
	const struct plan_ref *ref = &plan->refs[index];

	*ret = (struct sqe_binding){
		.bytes = ref->bytes ? ref->bytes * (ref->is_dynamic ? count : 1) : 1,
		.is_written = ref->is_written,
		.name = ref->name,
	};
}

RBK_EXPORT int rbk_sqe_check(struct rbk *rbk, const struct rbk_sqe *sqe, struct rbk_error *error)
{
	const struct sqe_session session = {
		.context = rbk,
		.features = rbk->features,
		.n_nameable = SQE_ANY_DISTANCE,
		.find_plan = find_plan,
		.find_arena = find_arena,
		.find_binding = find_binding,
	};
	struct sqe_fault fault;
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	if (!sqe)
		return client_error(error, -EINVAL, "there is no entry: the ring is full");
	pthread_mutex_lock(&rbk->lock);
	r = sqe_check(&session, sqe, &fault);
	pthread_mutex_unlock(&rbk->lock);
	return r ? client_error(error, r, "%s: %s", fault.field, fault.reason) : 0;
}
