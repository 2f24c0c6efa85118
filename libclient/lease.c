/* SPDX-License-Identifier: MIT */
/*
 * Leases
 *
 * The library records the broker's view of a member, credit and objects, to give all of it back,
 * and to report it to a new broker. A lease belongs to one connection at a time, and moves to
 * another only by rbk_lease_restore(). Requests that are in progress then end on the old
 * connection, which is lost.
 *
 * A connection that re-attaches restores its leases first. The record must then be what the next
 * broker is told, so it changes under reattach.objects only: what is given back is removed from it
 * before the request is sent, which goes to no later broker; what is obtained is added if the
 * broker that gave it has had no successor, and otherwise asked for again.
 *
 * Whatever is given back belongs to the broker from the moment it is sent, even without an answer.
 * The broker serves requests in order, and requests that it has not read when it or the connection
 * ends are void, because that end frees the memory. Credit is therefore never spent twice, nor
 * lost. In the same way an object that was paid for counts as added; if the broker rejected it
 * after all, dropping it fails, and its credit is given back then. Requests for credit are the
 * opposite: credit that arrives late is given back.
 *
 * After a timeout, requests do not wait for the broker until it sends an answer.
 *
 * Another member may take over the cost of an object without notice. The recorded charge is the
 * broker's last answer, and a new broker reports it anew. The new broker may therefore be told
 * slightly more than the true total until it knows the objects.
 *
 * The page is mapped at one address for the lease's life: the page of a new broker replaces the old
 * one, so readers notice nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ringbroker/lease.h>

#include "libclient/private.h"

struct lease_object {
	struct lease_object *next;
	uint64_t dev, ino, bytes;
	uint64_t charged_bytes; /* charge of this member */
	bool is_rejected;       /* the broker does not know it, and the charge is credit */
};

struct rbk_lease {
	pthread_mutex_t lock; /* protects all members that change */
	struct rbk *rbk;      /* counted reference */
	uint32_t number;
	uint32_t device;
	struct rbk_wire_lease_open opened; /* the request that opened or joined the lease */
	void *page;                        /* never changes */
	size_t page_bytes;                 /* never changes */
	/* The next members change under the connection's reattach.objects, too. */
	uint64_t credit_bytes;
	struct lease_object *objects;
	struct rbk_lease_use use; /* the last report */
	int cgroup_fd;            /* of rbk_lease_set_cgroup(), for the next broker; or -1 */
	struct rbk_lease *next;   /* in rbk->leases */
	bool is_listed;
	/* at the broker that the connection is being restored at */
	uint32_t next_number, next_device;
};

static int check_offered(const struct rbk *rbk, struct rbk_error *error)
{
	int r = client_check(rbk, error);

	if (r)
		return r;
	if (!(rbk->features & RBK_FEAT_LEASES))
		return client_error(error, -EOPNOTSUPP, "this broker does not support leases");
	return 0;
}

/* Convert to milliseconds, rounded up, saturating. */
static uint32_t wait_ms(uint64_t wait_ns)
{
	uint64_t ms = wait_ns / 1000000 + (wait_ns % 1000000 != 0);

	return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* Map the lease's page in place of the one at @at, or at any address if @at is NULL. */
static int map_page(int fd, uint64_t bytes, void *at, void **ret, struct rbk_error *error)
{
	int seals = fcntl(fd, F_GET_SEALS);
	const struct rbk_lease_page *page;
	struct stat stat;
	void *map, *moved;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &stat) || stat.st_size < 0 ||
	    (uint64_t)stat.st_size != bytes || bytes % client_page_bytes() != 0)
		return client_error(error, -EPROTO, "the lease's page has a wrong seal or size");
	map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return client_error(error, -errno, "cannot map the lease's page: %m");
	page = map;
	if (page->magic != RBK_LEASE_PAGE_MAGIC) {
		munmap(map, (size_t)bytes);
		return client_error(error, -EPROTO, "the lease's page has an unknown format");
	}
	/* Threads that read the page meanwhile find one of the two. */
	moved = at ? mremap(map, (size_t)bytes, (size_t)bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at)
		   : map;
	if (moved == MAP_FAILED) {
		munmap(map, (size_t)bytes);
		return client_error(error, -ENOMEM, "cannot map the lease's page anew");
	}
	*ret = moved;
	return 0;
}

static int fill_request(const struct rbk_lease_options *options, struct rbk_wire_lease_open *ret,
			struct rbk_error *error)
{
	*ret = (struct rbk_wire_lease_open){
		.request.type = RBK_WIRE_LEASE_OPEN,
		.number = options->join,
		.wait_ms = wait_ms(options->wait_ns),
	};
	if (options->program)
		strncpy(ret->program, options->program, sizeof(ret->program) - 1);
	ret->device = options->device;
	if (options->uuid) {
		ret->flags = RBK_WIRE_LEASE_BY_UUID;
		ret->device = 0;
		memcpy(ret->uuid, options->uuid, sizeof(ret->uuid));
	}
	if (options->join) {
		ret->flags |= RBK_WIRE_LEASE_JOIN;
		ret->device = 0;
		return 0;
	}
	ret->min_bytes = options->min_bytes ? options->min_bytes : 1;
	ret->wish_bytes = options->wish_bytes ? options->wish_bytes : options->max_bytes;
	ret->max_bytes = options->max_bytes ? options->max_bytes : options->wish_bytes;
	if (ret->wish_bytes < ret->min_bytes || ret->max_bytes < ret->wish_bytes)
		return client_error(error, -EINVAL,
				    "a lease requires its minimum to be at most its wish, and its "
				    "wish to be at most its maximum");
	return 0;
}

/* Count leases that the next broker would not restore as they are: add @n, 1 or -1. */
static void count_lease(struct rbk *rbk, int n)
{
	if (!(rbk->features & RBK_FEAT_RESTORE))
		client_count_held(rbk, &rbk->reattach.n_leases, n);
}

/*
 * Send a LEASE_OPEN. Where no other broker can restore the lease as it is, the connection does not
 * re-attach by itself from now on.
 */
static int open_at(struct rbk *rbk, const struct client_message *message, uint64_t wait_ns,
		   struct client_answer *ret, struct rbk_error *error)
{
	int r;

	count_lease(rbk, 1);
	r = client_request_for(rbk, message, wait_ns, ret, error);
	if (r)
		count_lease(rbk, -1);
	return r;
}

/* Put the lease into the list of its connection. Under reattach.objects. */
static void lease_list(struct rbk_lease *lease)
{
	lease->next = lease->rbk->leases;
	lease->rbk->leases = lease;
	lease->is_listed = true;
}

/* Remove the lease from the list, if it is in it: the next broker does not get it. */
static void lease_unlist(struct rbk_lease *lease)
{
	struct rbk_lease **link;

	if (!lease->is_listed)
		return;
	client_objects_lock(lease->rbk);
	for (link = &lease->rbk->leases; *link != lease; link = &(*link)->next)
		;
	*link = lease->next;
	client_objects_unlock(lease->rbk);
	lease->is_listed = false;
}

static struct rbk_lease *lease_new(void)
{
	struct rbk_lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		return NULL;
	pthread_mutex_init(&lease->lock, NULL);
	lease->cgroup_fd = -1;
	return lease;
}

static void lease_free(struct rbk_lease *lease)
{
	while (lease->objects) {
		struct lease_object *object = lease->objects;

		lease->objects = object->next;
		free(object);
	}
	if (lease->page)
		munmap(lease->page, lease->page_bytes);
	client_close(&lease->cgroup_fd);
	if (lease->rbk)
		client_unref(lease->rbk);
	pthread_mutex_destroy(&lease->lock);
	free(lease);
}

RBK_EXPORT int rbk_lease_open(struct rbk *rbk, const struct rbk_lease_options *options,
			      struct rbk_lease **ret, struct rbk_error *error)
{
	struct rbk_wire_lease_open request;
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	struct rbk_lease *lease;
	int r;

	r = check_offered(rbk, error);
	if (!r)
		r = fill_request(options, &request, error);
	if (r)
		return r;
	lease = lease_new();
	if (!lease)
		return client_error(error, -ENOMEM, "out of memory");
	lease->opened = request;
	do {
		/* Open it again at the next broker if the one that answered has died since. */
		if (lease->page)
			munmap(lease->page, lease->page_bytes);
		lease->page = NULL;
		r = open_at(rbk, &message, options->wait_ns, &answer, error);
		if (r)
			break;
		lease->page_bytes = (size_t)answer.reply.lease.page_bytes;
		r = map_page(answer.fds[0], lease->page_bytes, NULL, &lease->page, error);
		client_close(&answer.fds[0]);
	} while (!r && !client_objects_lock_for(rbk, answer.generation));
	if (r) {
		lease_free(lease);
		return r;
	}
	lease->rbk = client_ref(rbk);
	lease->number = answer.reply.lease.number;
	lease->device = answer.reply.lease.device;
	lease_list(lease);
	client_objects_unlock(rbk);
	*ret = lease;
	return 0;
}

struct rbk *client_lease_rbk(struct rbk_lease *lease)
{
	struct rbk *rbk;

	pthread_mutex_lock(&lease->lock);
	rbk = client_ref(lease->rbk);
	pthread_mutex_unlock(&lease->lock);
	return rbk;
}

/* Return: 0; -ETIME: the broker is stalled, and no request may be sent. */
static int check_answers(struct rbk *rbk, struct rbk_error *error)
{
	if (!client_stalls(rbk))
		return 0;
	return client_error(error, -ETIME,
			    "the broker has not answered an earlier request: requests are sent "
			    "again once it has");
}

/*
 * Send a request that gives something back to the broker of message->generation. @waits: wait for
 * the answer, unless the broker is stalled. The end of that broker is no failure.
 */
static int send_back(struct rbk *rbk, struct client_message *message, bool waits)
{
	struct client_answer answer;
	int r;

	message->repeat = CLIENT_BOUND;
	if (!waits || client_stalls(rbk))
		return client_post(rbk, message);
	r = client_request(rbk, message, &answer, NULL);
	return r == -ETIME || r == CLIENT_E_GONE ? 0 : r;
}

RBK_EXPORT void rbk_lease_close(struct rbk_lease *lease)
{
	int r;

	if (!lease)
		return;
	lease_unlist(lease);
	r = client_check(lease->rbk, NULL);
	while (!r && lease->objects)
		r = rbk_lease_object_drop(lease, lease->objects->dev, lease->objects->ino);
	if (client_check(lease->rbk, NULL) == 0)
		rbk_lease_give(lease, lease->credit_bytes, NULL);
	lease_free(lease);
}

RBK_EXPORT uint32_t rbk_lease_number(const struct rbk_lease *lease)
{
	return __atomic_load_n(&lease->number, __ATOMIC_RELAXED);
}

RBK_EXPORT uint32_t rbk_lease_device(const struct rbk_lease *lease)
{
	return __atomic_load_n(&lease->device, __ATOMIC_RELAXED);
}

RBK_EXPORT const struct rbk_lease_page *rbk_lease_page(const struct rbk_lease *lease)
{
	return lease->page;
}

static void fill_credit(struct rbk_wire_lease_credit *request, const struct rbk_lease_use *use)
{
	request->request.type = RBK_WIRE_LEASE_CREDIT;
	if (!use)
		return;
	request->used_bytes = use->used_bytes;
	request->extra_bytes = use->extra_bytes;
	request->n_objects = use->n_objects;
	request->n_refused = use->n_refused;
	request->peak_bytes = use->peak_bytes;
}

/* Change the credit. Under reattach.objects. Return: the bytes that were subtracted. */
static uint64_t add_credit(struct rbk_lease *lease, uint64_t more, uint64_t less)
{
	pthread_mutex_lock(&lease->lock);
	lease->credit_bytes += more;
	less = less < lease->credit_bytes ? less : lease->credit_bytes;
	lease->credit_bytes -= less;
	pthread_mutex_unlock(&lease->lock);
	return less;
}

static void keep_use(struct rbk_lease *lease, const struct rbk_lease_use *use)
{
	pthread_mutex_lock(&lease->lock);
	if (use)
		lease->use = *use;
	pthread_mutex_unlock(&lease->lock);
}

RBK_EXPORT int rbk_lease_take(struct rbk_lease *lease, uint64_t want_bytes, uint64_t least_bytes,
			      uint64_t wait_ns, const struct rbk_lease_use *use,
			      uint64_t *ret_bytes, struct rbk_error *error)
{
	struct rbk_wire_lease_credit request = {
		.wait_ms = wait_ms(wait_ns),
		.want_bytes = want_bytes,
		.least_bytes = least_bytes,
	};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = -1,
		.number = &lease->number,
		.number_at = &request.lease,
	};
	struct client_answer answer;
	struct rbk *rbk;
	int r;

	if (least_bytes > want_bytes)
		return client_error(error, -EINVAL, "the least credit exceeds the wanted credit");
	fill_credit(&request, use);
	rbk = client_lease_rbk(lease);
	r = check_answers(rbk, error);
	do {
		if (!r)
			r = client_request_for(rbk, &message, wait_ns, &answer, error);
		if (!r && (answer.reply.lease_given.given_bytes > want_bytes ||
			   answer.reply.lease_given.given_bytes < least_bytes))
			r = client_error(error, -EPROTO,
					 "the broker gave more or less credit than was requested");
	} while (!r && !client_objects_lock_for(rbk, answer.generation));
	if (!r) {
		*ret_bytes = answer.reply.lease_given.given_bytes;
		add_credit(lease, *ret_bytes, 0);
		keep_use(lease, use);
		client_objects_unlock(rbk);
	}
	client_unref(rbk);
	return r;
}

/* Give back credit. @waits: as for send_back(). */
static int give(struct rbk_lease *lease, uint64_t bytes, const struct rbk_lease_use *use,
		bool waits)
{
	struct rbk_wire_lease_credit request = {.return_bytes = bytes};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct rbk *rbk = client_lease_rbk(lease);
	uint64_t less;
	int r;

	fill_credit(&request, use);
	message.generation = client_objects_lock(rbk);
	request.lease = rbk_lease_number(lease);
	less = add_credit(lease, 0, bytes);
	keep_use(lease, use);
	client_objects_unlock(rbk);
	r = send_back(rbk, &message, waits);
	/* The next broker, if there is one by now, was told of less. */
	if (r && client_objects_lock_for(rbk, message.generation)) {
		add_credit(lease, less, 0);
		client_objects_unlock(rbk);
	} else {
		r = 0;
	}
	client_unref(rbk);
	return r;
}

RBK_EXPORT int rbk_lease_give(struct rbk_lease *lease, uint64_t bytes,
			      const struct rbk_lease_use *use)
{
	return give(lease, bytes, use, true);
}

int client_lease_give(struct rbk_lease *lease, uint64_t bytes, const struct rbk_lease_use *use)
{
	return give(lease, bytes, use, false);
}

/* Under reattach.objects. */
static void put_object(struct rbk_lease *lease, struct lease_object *object)
{
	pthread_mutex_lock(&lease->lock);
	object->next = lease->objects;
	lease->objects = object;
	pthread_mutex_unlock(&lease->lock);
}

RBK_EXPORT int rbk_lease_object_add(struct rbk_lease *lease, uint64_t dev, uint64_t ino,
				    uint64_t bytes, uint64_t from_credit_bytes,
				    uint64_t *ret_charged_bytes, struct rbk_error *error)
{
	struct rbk_wire_lease_object request = {
		.request.type = RBK_WIRE_LEASE_OBJECT,
		.action = RBK_WIRE_OBJECT_ADD,
		.dev = dev,
		.ino = ino,
		.bytes = bytes,
		.from_credit_bytes = from_credit_bytes,
	};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = -1,
		.number = &lease->number,
		.number_at = &request.lease,
	};
	struct lease_object *object = calloc(1, sizeof(*object));
	struct client_answer answer;
	struct rbk *rbk;
	int r;

	if (!object)
		return client_error(error, -ENOMEM, "out of memory");
	rbk = client_lease_rbk(lease);
	r = check_answers(rbk, error);
	do {
		if (r)
			break;
		r = client_request(rbk, &message, &answer, error);
		if (r == -ETIME && from_credit_bytes > 0) {
			answer.reply.lease_given.given_bytes = from_credit_bytes;
			r = 0;
		}
	} while (!r && !client_objects_lock_for(rbk, answer.generation));
	if (r) {
		client_unref(rbk);
		free(object);
		return r;
	}
	*object = (struct lease_object){
		.dev = dev,
		.ino = ino,
		.bytes = bytes,
		.charged_bytes = answer.reply.lease_given.given_bytes,
	};
	*ret_charged_bytes = object->charged_bytes;
	add_credit(lease, 0, from_credit_bytes);
	put_object(lease, object);
	client_objects_unlock(rbk);
	client_unref(rbk);
	return 0;
}

/* Remove an object from the list. Under the lock. Return: the object, or NULL. */
static struct lease_object *take_object(struct rbk_lease *lease, uint64_t dev, uint64_t ino)
{
	struct lease_object **at = &lease->objects, *object;

	while (*at && ((*at)->dev != dev || (*at)->ino != ino))
		at = &(*at)->next;
	object = *at;
	if (object)
		*at = object->next;
	return object;
}

/*
 * Drop an object. It is removed from the list before the request is sent, so that no other thread
 * drops it too, or reports it to a new broker. If the broker does not know the object because it
 * rejected it, or did not accept it when the lease was restored, its cost is credit again and is
 * given back.
 */
static int drop(struct rbk_lease *lease, uint64_t dev, uint64_t ino, bool waits)
{
	struct rbk_wire_lease_object request = {
		.request.type = RBK_WIRE_LEASE_OBJECT,
		.action = RBK_WIRE_OBJECT_DROP,
		.dev = dev,
		.ino = ino,
	};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct rbk *rbk = client_lease_rbk(lease);
	struct lease_object *object;
	int r;

	message.generation = client_objects_lock(rbk);
	pthread_mutex_lock(&lease->lock);
	object = take_object(lease, dev, ino);
	request.lease = rbk_lease_number(lease);
	pthread_mutex_unlock(&lease->lock);
	client_objects_unlock(rbk);
	if (!object) {
		r = client_check(rbk, NULL);
		client_unref(rbk);
		return r ? r : -ENOENT;
	}
	message.owed_bytes = object->charged_bytes;
	r = object->is_rejected ? give(lease, object->charged_bytes, NULL, waits)
				: send_back(rbk, &message, waits);
	if (r == -ENOENT) {
		r = 0;
		if (client_objects_lock_for(rbk, message.generation)) {
			add_credit(lease, object->charged_bytes, 0);
			client_objects_unlock(rbk);
			give(lease, object->charged_bytes, NULL, true);
		}
	}
	if ((r == -EBUSY || r == -ENOMEM) && client_objects_lock_for(rbk, message.generation)) {
		put_object(lease, object);
		client_objects_unlock(rbk);
	} else {
		free(object);
		r = r == -EBUSY || r == -ENOMEM ? 0 : r;
	}
	client_unref(rbk);
	return r;
}

RBK_EXPORT int rbk_lease_object_drop(struct rbk_lease *lease, uint64_t dev, uint64_t ino)
{
	return drop(lease, dev, ino, true);
}

int client_lease_object_drop(struct rbk_lease *lease, uint64_t dev, uint64_t ino)
{
	return drop(lease, dev, ino, false);
}

RBK_EXPORT int rbk_lease_set_cgroup(struct rbk_lease *lease, int fd,
				    char ret_region[RBK_LEASE_REGION_BYTES],
				    struct rbk_error *error)
{
	struct rbk_wire_lease_cgroup request = {.request.type = RBK_WIRE_LEASE_CGROUP};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = fd,
		.number = &lease->number,
		.number_at = &request.lease,
	};
	client_cleanup(client_close) int kept = -1;
	struct client_answer answer;
	struct rbk *rbk;
	int r = 0;

	if (fd < 0)
		return client_error(error, -EINVAL,
				    "a cgroup requires the descriptor of its directory");
	rbk = client_lease_rbk(lease);
	if (rbk->reattach.is_possible) {
		kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (kept < 0)
			r = client_error(error, -errno, "cannot keep the cgroup: %m");
	}
	do {
		if (!r)
			r = client_request(rbk, &message, &answer, error);
	} while (!r && !client_objects_lock_for(rbk, answer.generation));
	if (!r) {
		client_close(&lease->cgroup_fd);
		lease->cgroup_fd = kept;
		kept = -1;
		client_objects_unlock(rbk);
	}
	client_unref(rbk);
	if (r == 0 && ret_region)
		memcpy(ret_region, answer.reply.lease_region.region, RBK_LEASE_REGION_BYTES);
	return r;
}
_Static_assert(RBK_LEASE_REGION_BYTES == RBK_WIRE_NAME_BYTES, "the same");

int client_lease_timeslice(struct rbk_lease *lease, uint32_t action, uint32_t priority,
			   uint32_t word)
{
	struct rbk_wire_lease_timeslice request = {
		.request.type = RBK_WIRE_LEASE_TIMESLICE,
		.action = action,
		.priority = priority,
		.word = word,
	};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = -1,
		.repeat = CLIENT_BOUND,
	};
	struct rbk *rbk = client_lease_rbk(lease);
	struct client_answer answer;
	int r;

	if (action == RBK_WIRE_TIMESLICE_GIVE_UP && !(rbk->features & RBK_FEAT_SHARES))
		request.action = RBK_WIRE_TIMESLICE_DONE;
	if (action == RBK_WIRE_TIMESLICE_ENDING && !(rbk->features & RBK_FEAT_ENDING)) {
		request.action = RBK_WIRE_TIMESLICE_DONE;
		request.priority = 0;
	}
	message.generation = client_objects_lock(rbk);
	request.lease = rbk_lease_number(lease);
	client_objects_unlock(rbk);
	if (!(rbk->features & RBK_FEAT_TIMESLICE) ||
	    (action == RBK_WIRE_TIMESLICE_LEAVE && !(rbk->features & RBK_FEAT_UNSHARE)))
		r = -EOPNOTSUPP;
	else if (action >= RBK_WIRE_TIMESLICE_DONE)
		r = client_post(rbk, &message);
	else if (client_stalls(rbk))
		r = -ETIME;
	else
		r = client_request(rbk, &message, &answer, NULL);
	client_unref(rbk);
	return r;
}

/* Send a member's report, whose lease is at @number_at, without waiting for the answer. */
static int report(struct rbk_lease *lease, struct rbk_wire_request *request, size_t bytes,
		  uint32_t *number_at, uint64_t feature)
{
	struct client_message message = {
		.request = request,
		.request_bytes = bytes,
		.fd = -1,
		.repeat = CLIENT_BOUND,
	};
	struct rbk *rbk = client_lease_rbk(lease);
	int r;

	message.generation = client_objects_lock(rbk);
	*number_at = rbk_lease_number(lease);
	client_objects_unlock(rbk);
	r = rbk->features & feature ? client_post(rbk, &message) : -EOPNOTSUPP;
	client_unref(rbk);
	return r;
}

int client_lease_parts(struct rbk_lease *lease, const struct client_parts *parts)
{
	struct rbk_wire_lease_parts request = {
		.request.type = RBK_WIRE_LEASE_PARTS,
		.n_submissions = parts->n_submissions,
		.n_parts = parts->n_parts,
		.n_slices = parts->n_slices,
		.n_whole = parts->n_whole,
		.n_unsliced = parts->n_unsliced,
		.longest_ns = parts->longest_ns,
	};

	return report(lease, &request.request, sizeof(request), &request.lease, RBK_FEAT_PARTS);
}

RBK_EXPORT int rbk_lease_report_moved(struct rbk_lease *lease, uint64_t movable_bytes,
				      uint64_t moved_bytes)
{
	struct rbk_wire_lease_moved request = {
		.request.type = RBK_WIRE_LEASE_MOVED,
		.movable_bytes = movable_bytes,
		.moved_bytes = moved_bytes,
	};

	return report(lease, &request.request, sizeof(request), &request.lease, RBK_FEAT_SLEEP);
}

int client_lease_lost(struct rbk_lease *lease, uint32_t verdict, struct client_lost *ret)
{
	struct rbk_wire_lease_lost request = {
		.request.type = RBK_WIRE_LEASE_LOST,
		.verdict = verdict,
	};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = -1,
		.repeat = CLIENT_BOUND,
	};
	struct rbk *rbk = client_lease_rbk(lease);
	struct client_answer answer;
	int r;

	message.generation = client_objects_lock(rbk);
	request.lease = rbk_lease_number(lease);
	client_objects_unlock(rbk);
	r = rbk->features & RBK_FEAT_LOST ? 0 : -EOPNOTSUPP;
	if (!r)
		r = client_stalls(rbk) ? -ETIME : client_request(rbk, &message, &answer, NULL);
	client_unref(rbk);
	if (r)
		return r;
	ret->is_final = answer.reply.id.id != 0;
	memcpy(ret->text, answer.reply.head.text, sizeof(ret->text));
	return 0;
}

/* ---- The next broker ---- */

/* Add the member's objects at a new broker, paid for out of the restored credit. Under the lock. */
static void restore_objects(struct rbk_lease *lease, struct rbk *rbk)
{
	for (struct lease_object *object = lease->objects; object; object = object->next) {
		struct rbk_wire_lease_object request = {
			.request.type = RBK_WIRE_LEASE_OBJECT,
			.lease = lease->next_number,
			.action = RBK_WIRE_OBJECT_ADD,
			.dev = object->dev,
			.ino = object->ino,
			.bytes = object->bytes,
			.from_credit_bytes = object->charged_bytes < lease->credit_bytes
						     ? object->charged_bytes
						     : lease->credit_bytes,
		};
		const struct client_message message = {
			&request.request, sizeof(request), NULL, 0, -1,
		};
		struct client_answer answer;

		/* The cost of a rejected object remains credit until the object is dropped. */
		object->is_rejected =
			client_stalls(rbk) || client_request(rbk, &message, &answer, NULL);
		if (object->is_rejected)
			continue;
		lease->credit_bytes -= request.from_credit_bytes;
		object->charged_bytes = answer.reply.lease_given.given_bytes;
	}
}

/* Repeat the member's last report, and name its cgroup. Return: 0; the errno of the cgroup. */
static int restore_rest(const struct rbk_lease *lease, struct rbk *rbk, struct rbk_error *error)
{
	struct rbk_wire_lease_credit report = {.lease = lease->next_number};
	struct rbk_wire_lease_cgroup cgroup = {
		.request.type = RBK_WIRE_LEASE_CGROUP,
		.lease = lease->next_number,
	};
	const struct client_message reporting = {&report.request, sizeof(report), NULL, 0, -1};
	const struct client_message naming = {
		&cgroup.request, sizeof(cgroup), NULL, 0, lease->cgroup_fd,
	};
	struct client_answer answer;

	fill_credit(&report, &lease->use);
	client_request(rbk, &reporting, &answer, NULL);
	return lease->cgroup_fd < 0 ? 0 : client_request(rbk, &naming, &answer, error);
}

/* Return the sum of the objects' charges in bytes, or of those that are credit. Under the lock. */
static uint64_t charged_bytes(const struct rbk_lease *lease, bool is_credit)
{
	uint64_t bytes = 0;

	for (const struct lease_object *object = lease->objects; object; object = object->next)
		bytes += !is_credit || object->is_rejected ? object->charged_bytes : 0;
	return bytes;
}

/* Return the flags of the request that restores the lease at the broker of @rbk. */
static uint32_t lease_restore_flags(const struct rbk_lease *lease, const struct rbk *rbk)
{
	const struct rbk_lease_page *page = lease->page;
	uint32_t flags = RBK_WIRE_LEASE_RESTORE | (lease->opened.flags & RBK_WIRE_LEASE_BY_UUID);

	if (!(rbk->features & RBK_FEAT_RESTORE))
		return flags;
	if (!(lease->opened.flags & RBK_WIRE_LEASE_JOIN))
		flags |= RBK_WIRE_LEASE_OPENER;
	if (__atomic_load_n(&page->resized_bytes, __ATOMIC_RELAXED) > 0)
		flags |= RBK_WIRE_LEASE_RESIZED;
	return flags;
}

/* Fill in the request that restores a lease with @credit_bytes of credit. Under the lock. */
static void fill_restoring(const struct rbk_lease *lease, const struct rbk *rbk,
			   uint64_t credit_bytes, struct rbk_wire_lease_open *ret)
{
	const struct rbk_lease_page *known = lease->page;

	*ret = lease->opened;
	ret->wait_ms = 0;
	ret->number = lease->number;
	/* The broker rejects an absurd number. */
	if (__builtin_add_overflow(credit_bytes, charged_bytes(lease, false), &ret->held_bytes))
		ret->held_bytes = UINT64_MAX;
	if (ret->flags & RBK_WIRE_LEASE_JOIN) {
		/* A member that joined has the lease's sizes from the page. */
		if (!(ret->flags & RBK_WIRE_LEASE_BY_UUID))
			ret->device = lease->device;
		ret->min_bytes = 1;
		ret->max_bytes = __atomic_load_n(&known->max_bytes, __ATOMIC_RELAXED);
		ret->wish_bytes = __atomic_load_n(&known->wish_bytes, __ATOMIC_RELAXED);
		if (ret->wish_bytes == 0 || ret->wish_bytes > ret->max_bytes)
			ret->wish_bytes = ret->max_bytes;
	}
	ret->flags = lease_restore_flags(lease, rbk);
	if (ret->flags & RBK_WIRE_LEASE_RESIZED) {
		ret->wish_bytes = __atomic_load_n(&known->resized_bytes, __ATOMIC_RELAXED);
		if (ret->min_bytes > ret->wish_bytes)
			ret->min_bytes = ret->wish_bytes;
	}
}

/* Return what rbk_lease_share() had set at the last broker. */
static struct rbk_wire_lease_share sharing_of(const struct rbk_lease *lease)
{
	const struct rbk_lease_page *page = lease->page;
	const uint32_t set = __atomic_load_n(&page->set, __ATOMIC_RELAXED);
	const uint32_t priority = __atomic_load_n(&page->priority, __ATOMIC_RELAXED);

	return (struct rbk_wire_lease_share){
		.request.type = RBK_WIRE_LEASE_SHARE,
		.priority = !(set & RBK_LEASE_SET_PRIORITY) ? 0
			    : priority > 0                  ? priority
							    : 1 + RBK_PRIORITY_NONE,
		.share = set & RBK_LEASE_SET_SHARE ? __atomic_load_n(&page->share, __ATOMIC_RELAXED)
						   : 0,
	};
}

/* Set the same at the next one, which may be older. */
static void restore_sharing(struct rbk *rbk, uint32_t number, struct rbk_wire_lease_share sharing)
{
	struct client_message message = {&sharing.request, sizeof(sharing), NULL, 0, -1};
	struct client_answer answer;

	sharing.lease = number;
	if (sharing.priority == 1 + RBK_PRIORITY_NONE && !(rbk->features & RBK_FEAT_UNSHARE))
		sharing.priority = 0;
	if ((rbk->features & RBK_FEAT_SHARES) && (sharing.priority > 0 || sharing.share > 0))
		client_request(rbk, &message, &answer, NULL);
}

/*
 * Restore the lease, with @credit_bytes of credit, at the broker of @rbk. Under the lock.
 * Return: 0, with next_number and next_device, and the generation of that broker; negative errno
 * with a sentence: the lease can be restored elsewhere.
 */
static int restore_at(struct rbk_lease *lease, struct rbk *rbk, uint64_t credit_bytes,
		      uint32_t *ret_generation, struct rbk_error *error)
{
	const struct rbk_wire_lease_share sharing = sharing_of(lease);
	struct rbk_wire_lease_open request;
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;
	void *page;
	int r;

	fill_restoring(lease, rbk, credit_bytes, &request);
	r = open_at(rbk, &message, 0, &answer, error);
	if (r)
		return r;
	r = answer.reply.lease.page_bytes == lease->page_bytes
		    ? map_page(answer.fds[0], lease->page_bytes, lease->page, &page, error)
		    : client_error(error, -EPROTO, "the lease's page has another size than before");
	client_close(&answer.fds[0]);
	if (r)
		return r;
	lease->next_number = answer.reply.lease.number;
	lease->next_device = answer.reply.lease.device;
	lease->credit_bytes = request.held_bytes;
	*ret_generation = answer.generation;
	restore_objects(lease, rbk);
	if (request.flags & RBK_WIRE_LEASE_OPENER)
		restore_sharing(rbk, lease->next_number, sharing);
	return 0;
}

/* Have the new number apply. */
static void restored(struct rbk_lease *lease)
{
	__atomic_store_n(&lease->number, lease->next_number, __ATOMIC_RELAXED);
	__atomic_store_n(&lease->device, lease->next_device, __ATOMIC_RELAXED);
}

RBK_EXPORT int rbk_lease_restore(struct rbk_lease *lease, struct rbk *rbk, uint64_t credit_bytes,
				 struct rbk_error *error)
{
	struct rbk *before = NULL;
	uint32_t generation;
	bool was_listed;
	int r;

	r = check_offered(rbk, error);
	if (r)
		return r;
	was_listed = lease->is_listed;
	lease_unlist(lease);
	do {
		pthread_mutex_lock(&lease->lock);
		r = restore_at(lease, rbk, credit_bytes, &generation, error);
		if (!r)
			restored(lease);
		pthread_mutex_unlock(&lease->lock);
	} while (!r && !client_objects_lock_for(rbk, generation));
	if (!r) {
		pthread_mutex_lock(&lease->lock);
		before = lease->rbk;
		lease->rbk = client_ref(rbk);
		pthread_mutex_unlock(&lease->lock);
		lease_list(lease);
		client_objects_unlock(rbk);
		client_unref(before);
	} else if (was_listed) {
		client_objects_lock(lease->rbk);
		lease_list(lease);
		client_objects_unlock(lease->rbk);
	}
	return r;
}

int client_leases_restore(struct rbk *rbk, struct rbk *fresh, uint32_t *ret_n,
			  struct rbk_error *error)
{
	uint32_t n = 0, generation;
	uint64_t credit_bytes;
	int r;

	for (struct rbk_lease *lease = rbk->leases; lease; lease = lease->next, n++) {
		pthread_mutex_lock(&lease->lock);
		credit_bytes = charged_bytes(lease, true);
		credit_bytes =
			lease->credit_bytes > credit_bytes ? lease->credit_bytes - credit_bytes : 0;
		r = restore_at(lease, fresh, credit_bytes, &generation, error);
		if (!r)
			r = restore_rest(lease, fresh, error);
		pthread_mutex_unlock(&lease->lock);
		if (r) {
			*ret_n = lease->number;
			return r;
		}
	}
	*ret_n = n;
	return 0;
}

void client_leases_restored(struct rbk *rbk)
{
	for (struct rbk_lease *lease = rbk->leases; lease; lease = lease->next)
		restored(lease);
}
