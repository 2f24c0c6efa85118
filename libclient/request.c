/* SPDX-License-Identifier: MIT */
/*
 * Requests on the control socket
 *
 * Any number of threads make requests at the same time, and the broker answers in any order: a plan
 * takes long to prepare, and other requests need not wait for it. The library has no thread (except
 * while a connection re-attaches), so one of the waiting threads reads for all. It receives an
 * answer, delivers it to the request with that cookie, and wakes all waiters. After its own answer
 * another waiter takes over. Sending needs no lock, because a packet is sent whole.
 *
 * A request that timed out stays in the list, abandoned: a late answer is no protocol error, and
 * the objects that it made must be given back. Requests without any waiter (client_post()) stay in
 * the list too: giving something back must not delay the caller. Their answers are read by the next
 * request.
 *
 * A broker that let a request time out is stalled until it sends any answer. Callers that must not
 * wait check client_stalls() first.
 *
 * Any failure of the socket ends the connection: client_lose() stores the reason, wakes all threads
 * that wait for answers, and shuts down the bells, which wakes the threads that sleep in a ring. If
 * the broker is gone and the connection may re-attach, client_broker_gone() does the same without
 * ending the connection: requests wait for the next broker and are sent again. The new socket takes
 * the number of the old one once no thread reads or sends on the old one without the lock.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "libclient/private.h"
#include "shm/ring.h"

/* The broker counts as lost above this number of unanswered abandoned requests. */
#define REQUESTS_ABANDONED_MAX 256
/*
 * client_post() sends nothing at this number of abandoned requests, which fit into any socket
 * buffer.
 */
#define REQUESTS_POSTED_MAX 64

struct client_request {
	struct client_request *next;
	uint32_t type;
	uint32_t cookie;
	uint32_t generation; /* as in struct client_answer */
	bool done;
	bool abandoned;
	struct client_answer *answer; /* the waiter's */
	union {
		struct rbk_wire_lease_credit credit; /* copy of a LEASE_CREDIT request */
		struct rbk_wire_lease_object object; /* copy of a LEASE_OBJECT request */
	};
	uint64_t owed_bytes; /* as in struct client_message */
	int r;
	struct rbk_error error;
};

/*
 * A received packet. The buffer has one byte more than the longest answer, to detect longer
 * packets.
 */
struct packet {
	union {
		union client_reply reply;
		unsigned char bytes[CLIENT_REPLY_MAX_BYTES + 1];
	};
	size_t n_bytes;
	int fds[RBK_WIRE_MAX_FDS];
	unsigned int n_fds;
	bool lacks_fds; /* descriptors were sent, but this process has no free number for them */
};

static void packet_close(struct packet *packet)
{
	while (packet->n_fds > 0)
		client_close(&packet->fds[--packet->n_fds]);
}

/* Wake all threads that use the connection's socket and bells. Under the lock. */
static void wake_all(struct rbk *rbk)
{
	shutdown(rbk->fd, SHUT_RDWR);
	for (struct client_ring_cold *ring = rbk->rings; ring; ring = ring->next) {
		shutdown(ring->bell, SHUT_RDWR);
		if (ring->area)
			shutdown(ring->area->bell, SHUT_RDWR);
	}
	pthread_cond_broadcast(&rbk->changed);
}

/* Mark the connection as lost, and wake all threads that use it. Under the lock. */
static void lose(struct rbk *rbk, int r)
{
	if (rbk->lost)
		return;
	__atomic_store_n(&rbk->lost, r, __ATOMIC_RELEASE);
	__atomic_store_n(&rbk->reattach.is_away, false, __ATOMIC_RELEASE);
	if (rbk->reattach.fresh)
		shutdown(rbk->reattach.fresh->fd, SHUT_RDWR);
	if (rbk->reattach.is_possible)
		eventfd_write(rbk->reattach.news_fd, 1);
	wake_all(rbk);
}

void client_lose(struct rbk *rbk, int r)
{
	pthread_mutex_lock(&rbk->lock);
	lose(rbk, r);
	pthread_mutex_unlock(&rbk->lock);
}

bool client_give_up(struct rbk *rbk, const char *reason)
{
	bool is_first;

	pthread_mutex_lock(&rbk->lock);
	is_first = !rbk->lost;
	if (is_first)
		snprintf(rbk->reattach.reason, sizeof(rbk->reattach.reason), "%s", reason);
	lose(rbk, -ECONNRESET);
	pthread_mutex_unlock(&rbk->lock);
	return is_first;
}

int client_check(const struct rbk *rbk, struct rbk_error *error)
{
	const char *reason = rbk->reattach.reason;
	int r;

	if (client_is_child(rbk))
		return client_error(error, -ECHILD,
				    "the connection belongs to the parent process: connect again "
				    "in the child");
	r = __atomic_load_n(&rbk->lost, __ATOMIC_ACQUIRE);
	if (r == -EPROTO)
		return client_error(error, r, "the broker sent an answer that breaks the protocol");
	if (r)
		return client_error(error, r, "the broker is gone, or it ended this session%s%s",
				    reason[0] ? ": " : "", reason);
	return 0;
}

/* ---- Death of the broker ---- */

bool client_may_reattach(const struct rbk *rbk)
{
	return rbk->reattach.is_possible && rbk->reattach.n_leases == 0 &&
	       rbk->reattach.n_exported == 0 && rbk->reattach.n_unmovable == 0;
}

void client_count_held(struct rbk *rbk, uint32_t *count, int n)
{
	if (client_is_child(rbk))
		return;
	pthread_mutex_lock(&rbk->lock);
	*count += (uint32_t)n;
	pthread_mutex_unlock(&rbk->lock);
}

/* Return true if the broker has ended the session for good, and said so in a ring. */
static bool session_is_closed(const struct rbk *rbk)
{
	for (const struct client_ring_cold *ring = rbk->rings; ring; ring = ring->next) {
		const struct rbk_cq_area *cq = ring->area ? ring->area->cq_map : ring->cq_map;

		if (__atomic_load_n(&cq->closed, __ATOMIC_ACQUIRE) == RBK_RING_CLOSED)
			return true;
	}
	return false;
}

/* Free the requests without a waiter: what they gave back or asked for is gone. */
static void drop_abandoned(struct rbk *rbk)
{
	struct client_request **link = &rbk->requests;

	while (*link) {
		struct client_request *request = *link;

		if (!request->abandoned) {
			link = &request->next;
			continue;
		}
		*link = request->next;
		free(request);
	}
	rbk->n_abandoned = 0;
	rbk->stalls = false;
}

/*
 * Start the thread that restores the connection. It handles no signals. It has the usual scheduling
 * policy, because the thread that notices the death may have a real-time policy, and copying arenas
 * takes long. Under the lock. Return: 0; -errno.
 */
static int start_thread(struct rbk *rbk)
{
	const struct sched_param usual = {.sched_priority = 0};
	sigset_t all, before;
	struct client_reattach *reattach = &rbk->reattach;
	pthread_attr_t attr;
	int r;

	/* The last thread does nothing any more but return. */
	if (reattach->is_unjoined)
		pthread_join(reattach->thread, NULL);
	reattach->is_unjoined = false;

	r = pthread_attr_init(&attr);
	if (r)
		return -r;
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
	pthread_attr_setschedparam(&attr, &usual);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&reattach->thread, &attr, reattach->main, rbk);
	/* Leaving SCHED_IDLE takes permission, and seccomp filters may forbid the choice. */
	if (r == EPERM) {
		pthread_attr_setinheritsched(&attr, PTHREAD_INHERIT_SCHED);
		r = pthread_create(&reattach->thread, &attr, reattach->main, rbk);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	reattach->is_unjoined = r == 0;
	return -r;
}

/*
 * Act as client_broker_gone(). @error: the errno of a call of this process that ends the use of the
 * socket; 0: the broker has closed it.
 */
static void stop_using_socket(struct rbk *rbk, int error)
{
	struct client_reattach *reattach = &rbk->reattach;
	const char *reason = "";
	eventfd_t count;

	if (rbk->lost || reattach->is_away)
		return;
	if (reattach->is_possible && reattach->n_leases > 0)
		reason = "the connection has a lease, so it does not re-attach by itself";
	else if (reattach->is_possible && reattach->n_exported > 0)
		reason = "an arena in memory of the broker's device cannot be restored";
	else if (reattach->is_possible && reattach->n_unmovable > 0)
		reason = "an arena cannot be restored, because this process may not use "
			 "userfaultfd (Linux 5.19)";
	if (!client_may_reattach(rbk) || session_is_closed(rbk)) {
		snprintf(reattach->reason, sizeof(reattach->reason), "%s", reason);
		errno = error;
		if (error)
			snprintf(reattach->reason, sizeof(reattach->reason),
				 "this process cannot receive an answer: %m");
		lose(rbk, -ECONNRESET);
		return;
	}
	__atomic_store_n(&reattach->is_away, true, __ATOMIC_RELEASE);
	reattach->gone_ns = client_now_ns();
	eventfd_read(reattach->news_fd, &count);
	drop_abandoned(rbk);
	/* A thread that is still in on_reattach goes on with this death afterwards. */
	if (!reattach->has_thread && start_thread(rbk)) {
		snprintf(reattach->reason, sizeof(reattach->reason),
			 "there was no memory for a thread to restore it");
		lose(rbk, -ECONNRESET);
		return;
	}
	reattach->has_thread = true;
	wake_all(rbk);
}

void client_broker_gone(struct rbk *rbk)
{
	stop_using_socket(rbk, 0);
}

void client_look(struct rbk *rbk)
{
	char byte;

	pthread_mutex_lock(&rbk->lock);
	/* Answers that came before the end are read by those who wait for them. */
	if (!rbk->lost && !rbk->reattach.is_away &&
	    recv(rbk->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) == 0)
		client_broker_gone(rbk);
	pthread_mutex_unlock(&rbk->lock);
}

/*
 * End the use of the socket after receive_packet() or wait_readable() failed with @r: -ECONNRESET
 * if the broker has closed the socket, -EPROTO if it broke the protocol, or the errno of a call of
 * this process.
 */
static void socket_failed(struct rbk *rbk, int r)
{
	if (r == -EPROTO)
		lose(rbk, r);
	else
		stop_using_socket(rbk, r == -ECONNRESET ? 0 : -r);
}

/* ---- Requests ---- */

/* Return true if the request was sent to a broker that is gone. Under the lock. */
static bool request_is_cut(const struct rbk *rbk, const struct client_request *request)
{
	return rbk->reattach.is_away || request->generation != rbk->reattach.n_done;
}

static void request_unlink(struct rbk *rbk, struct client_request *request)
{
	struct client_request **link = &rbk->requests;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	rbk->n_abandoned -= request->abandoned;
}

/*
 * Send a message. A broker that hung up is not reported here, because its last answers are still to
 * be read.
 * Return: 0; negative errno if the message cannot be sent.
 */
static int send_message(struct rbk *rbk, const struct client_message *message, int flags)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	const int fds[2] = {message->fd, message->second_fd};
	const size_t fds_bytes = (message->has_second_fd ? 2 : 1) * sizeof(int);
	struct iovec parts[2] = {
		{message->request, message->request_bytes},
		{(void *)message->tail, message->tail_bytes},
	};
	struct msghdr header = {.msg_iov = parts, .msg_iovlen = message->tail_bytes ? 2 : 1};
	ssize_t n;

	if (message->fd >= 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(fds_bytes);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(fds_bytes);
		memcpy(CMSG_DATA(&control.header), fds, fds_bytes);
	}
	do
		n = sendmsg(rbk->fd, &header, MSG_NOSIGNAL | flags);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EPIPE && errno != ECONNRESET)
		return errno == EAGAIN ? -ETIME : -errno;
	return 0;
}

/* Return: 0; -EAGAIN if there is no answer; else as socket_failed() takes it. */
static int receive_packet(int fd, struct packet *packet)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(RBK_WIRE_MAX_FDS * sizeof(int))];
	} control;
	struct iovec part = {packet->bytes, sizeof(packet->bytes)};
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	ssize_t n;
	int n_resets = 0;

	packet->n_fds = 0;
	do
		n = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	/* A reset is reported before the data that was sent before it: read once more. */
	while (n < 0 && (errno == EINTR || (errno == ECONNRESET && n_resets++ == 0)));
	if (n < 0)
		return -errno;

	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header); cmsg; cmsg = CMSG_NXTHDR(&header, cmsg))
		if (cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS) {
			packet->n_fds = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			memcpy(packet->fds, CMSG_DATA(cmsg), packet->n_fds * sizeof(int));
		}
	/* The kernel leaves out descriptors for which the process has no free number. */
	packet->lacks_fds = header.msg_flags & MSG_CTRUNC && packet->n_fds < RBK_WIRE_MAX_FDS;
	if (n == 0 || (header.msg_flags & MSG_TRUNC) || (size_t)n > CLIENT_REPLY_MAX_BYTES ||
	    (header.msg_flags & MSG_CTRUNC && !packet->lacks_fds)) {
		packet_close(packet);
		return n == 0 ? -ECONNRESET : -EPROTO;
	}
	packet->n_bytes = (size_t)n;
	return 0;
}

/* Wait until the socket is readable. Return: 0; -ETIME; else as socket_failed() takes it. */
static int wait_readable(int fd, uint64_t deadline_ns)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	for (;;) {
		uint64_t now_ns = client_now_ns(), left_ns;
		struct timespec left;
		int n;

		left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
		left.tv_sec = (time_t)(left_ns / 1000000000u);
		left.tv_nsec = (long)(left_ns % 1000000000u);
		n = ppoll(&poll_fd, 1, deadline_ns == CLIENT_NEVER ? NULL : &left, NULL);
		if (n > 0)
			return 0;
		if (n == 0 && left_ns == 0)
			return -ETIME;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

/* Make the record of a request. Return: NULL without memory. */
static struct client_request *request_new(const struct client_message *message)
{
	struct client_request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->type = message->request->type;
	request->owed_bytes = message->owed_bytes;
	return request;
}

/* Keep a copy of what is sent, for an answer that comes after the timeout. */
static void request_keep(struct client_request *request, const struct client_message *message)
{
	if (request->type == RBK_WIRE_LEASE_CREDIT)
		memcpy(&request->credit, message->request, sizeof(request->credit));
	if (request->type == RBK_WIRE_LEASE_OBJECT)
		memcpy(&request->object, message->request, sizeof(request->object));
}

/*
 * Send a request without a waiter. Under the lock; does not wait.
 * Return: 0; it was not sent: -ETIME: the socket is full; -ENOMEM, other errors of the socket.
 */
static int send_abandoned(struct rbk *rbk, const struct client_message *message)
{
	struct client_request *request = request_new(message);
	int r;

	if (!request)
		return -ENOMEM;
	request_keep(request, message);
	request->cookie = message->request->cookie = rbk->next_cookie++;
	r = send_message(rbk, message, MSG_DONTWAIT);
	if (r) {
		free(request);
		return r;
	}
	request->abandoned = true;
	request->generation = rbk->reattach.n_done;
	request->next = rbk->requests;
	rbk->requests = request;
	rbk->n_abandoned++;
	return 0;
}

/*
 * Remove an object that was made for an abandoned request. Under the lock. If the removal cannot be
 * sent, the object ends with the session.
 */
static void give_back(struct rbk *rbk, uint32_t type, uint32_t id)
{
	struct rbk_wire_id remove = {
		.request.type = type == RBK_WIRE_ARENA_NEW ? RBK_WIRE_ARENA_REMOVE : type + 1,
		.id = id,
	};
	struct client_message message = {&remove.request, sizeof(remove), NULL, 0, -1};

	send_abandoned(rbk, &message);
}

/* Give back credit of a lease that was granted to an abandoned request. */
static void give_credit_back(struct rbk *rbk, uint32_t lease, uint64_t bytes)
{
	struct rbk_wire_lease_credit back = {
		.request.type = RBK_WIRE_LEASE_CREDIT,
		.lease = lease,
		.return_bytes = bytes,
	};
	struct client_message message = {&back.request, sizeof(back), NULL, 0, -1};

	if (bytes > 0)
		send_abandoned(rbk, &message);
}

/*
 * Settle the answer to an abandoned request for a lease's object. An added object that cost nothing
 * is dropped. An object that was paid for counts as added since its request timed out; if the
 * broker rejected it, the later drop fails with -ENOENT, and its cost is given back.
 */
static void settle_object(struct rbk *rbk, const struct client_request *request, int res)
{
	struct rbk_wire_lease_object drop = request->object;
	struct client_message message = {&drop.request, sizeof(drop), NULL, 0, -1};

	if (drop.action == RBK_WIRE_OBJECT_DROP) {
		if (res == -ENOENT)
			give_credit_back(rbk, drop.lease, request->owed_bytes);
		return;
	}
	drop.action = RBK_WIRE_OBJECT_DROP;
	if (res == 0 && drop.from_credit_bytes == 0)
		send_abandoned(rbk, &message);
}

_Static_assert(RBK_WIRE_RING_REMOVE == RBK_WIRE_RING_ADD + 1, "give_back() relies on it");
_Static_assert(RBK_WIRE_ARENA_REMOVE == RBK_WIRE_ARENA_ADD + 1, "give_back() relies on it");
_Static_assert(RBK_WIRE_PLAN_REMOVE == RBK_WIRE_PLAN_ADD + 1, "give_back() relies on it");

/*
 * Find the id of the object that a positive answer reports, for give_back(). Return: false if it
 * reports none.
 */
static bool reply_names(const union client_reply *reply, uint32_t type, uint32_t *ret_id)
{
	switch (reply->head.res == 0 ? type : 0) {
	case RBK_WIRE_RING_ADD:
		*ret_id = reply->ring.id;
		return true;
	case RBK_WIRE_ARENA_ADD:
	case RBK_WIRE_ARENA_NEW:
		*ret_id = reply->id.id;
		return true;
	case RBK_WIRE_PLAN_ADD:
		*ret_id = reply->plan.id;
		return true;
	default:
		return false;
	}
}

/* Settle the answer to an abandoned request. Under the lock. */
static void settle(struct rbk *rbk, const struct client_request *request,
		   const union client_reply *reply)
{
	int res = reply->head.res;
	uint32_t id;

	if (reply_names(reply, request->type, &id))
		give_back(rbk, request->type, id);
	else if (request->type == RBK_WIRE_LEASE_CREDIT && res == 0)
		give_credit_back(rbk, request->credit.lease, reply->lease_given.given_bytes);
	else if (request->type == RBK_WIRE_LEASE_OBJECT)
		settle_object(rbk, request, res);
	else if (request->type == RBK_WIRE_LEASE_OPEN && res == 0)
		/* A session leaves a lease only when it ends. */
		lose(rbk, -ECONNRESET);
}

/* Copy the operators, which do not fit into union client_reply. Return: 0; -ENOMEM. */
static int keep_operators(const struct packet *packet, struct client_answer *answer,
			  struct rbk_error *error)
{
	size_t bytes = packet->n_bytes - sizeof(struct rbk_wire_catalogue);

	answer->operators = malloc(bytes + 1);
	if (!answer->operators)
		return client_error(error, -ENOMEM, "out of memory");
	memcpy(answer->operators, packet->bytes + sizeof(struct rbk_wire_catalogue), bytes);
	return 0;
}

/* Fail a request whose descriptors did not arrive, and give back its object. Under the lock. */
static void refuse(struct rbk *rbk, struct packet *packet, struct client_request *request)
{
	uint32_t id;

	packet_close(packet);
	if (reply_names(&packet->reply, request->type, &id))
		give_back(rbk, request->type, id);
	request->done = true;
	request->r = client_error(&request->error, -EMFILE,
				  "this process has reached its limit of open files (ulimit -n)");
}

/* Deliver a packet to the request that it answers, with its descriptors. Under the lock. */
static void deliver(struct rbk *rbk, struct packet *packet)
{
	struct client_request *request;
	struct rbk_error error;
	unsigned int n_fds = packet->n_fds;

	for (request = rbk->requests; request; request = request->next)
		if (!request->done && !request_is_cut(rbk, request) &&
		    packet->n_bytes >= sizeof(struct rbk_wire_reply) &&
		    request->cookie == packet->reply.head.cookie)
			break;
	/* Check the rest of the answer as if the descriptors had arrived. */
	if (request && packet->lacks_fds)
		n_fds = client_reply_fds(request->type);
	if (!request ||
	    client_reply_check(&packet->reply, packet->n_bytes, n_fds, request->type, &error)) {
		packet_close(packet);
		if (request && !request->abandoned) {
			request->done = true;
			request->r = -EPROTO;
			request->error = error;
		}
		lose(rbk, -EPROTO);
		return;
	}
	rbk->stalls = false;
	if (request->abandoned) {
		packet_close(packet);
		settle(rbk, request, &packet->reply);
		request_unlink(rbk, request);
		free(request);
		return;
	}
	if (packet->lacks_fds) {
		refuse(rbk, packet, request);
		return;
	}

	request->done = true;
	request->r = packet->reply.head.res;
	if (request->r)
		client_error(&request->error, request->r, "%s",
			     packet->reply.head.text[0] ? packet->reply.head.text
							: "the broker refused without a reason");
	memcpy(&request->answer->reply, &packet->reply,
	       packet->n_bytes < sizeof(packet->reply) ? packet->n_bytes : sizeof(packet->reply));
	if (request->type == RBK_WIRE_CATALOGUE && request->r == 0)
		request->r = keep_operators(packet, request->answer, &request->error);
	memcpy(request->answer->fds, packet->fds, sizeof(packet->fds));
	request->answer->n_fds = packet->n_fds;
}

/*
 * Wait for the answer to @request. Read for all waiters unless another thread does. Under the lock.
 * Return: 0 if the request is done or the broker gone; -ETIME.
 */
static int wait_done(struct rbk *rbk, struct client_request *request, uint64_t deadline_ns)
{
	struct timespec deadline = {(time_t)(deadline_ns / 1000000000u),
				    (long)(deadline_ns % 1000000000u)};
	struct packet packet;
	int r = 0;

	while (!request->done && !rbk->lost && !request_is_cut(rbk, request) && r != -ETIME) {
		if (rbk->reading) {
			r = pthread_cond_timedwait(&rbk->changed, &rbk->lock, &deadline) ? -ETIME
											 : 0;
			continue;
		}

		rbk->reading = true;
		pthread_mutex_unlock(&rbk->lock);
		r = wait_readable(rbk->fd, deadline_ns);
		if (!r)
			r = receive_packet(rbk->fd, &packet);
		pthread_mutex_lock(&rbk->lock);
		rbk->reading = false;

		/* The last answers of a broker that is gone name objects that went with it. */
		if (!r && rbk->reattach.is_away)
			packet_close(&packet);
		else if (!r)
			deliver(rbk, &packet);
		else if (r != -ETIME && r != -EAGAIN)
			socket_failed(rbk, r);
		pthread_cond_broadcast(&rbk->changed);
	}
	return request->done || rbk->lost || request_is_cut(rbk, request) ? 0 : -ETIME;
}

/* Report a timeout, and name the process that owes the answer. Return: -ETIME. */
static int no_answer(const struct rbk *rbk, uint64_t timeout_ns, struct rbk_error *error)
{
	const double seconds = (double)timeout_ns / 1e9;
	struct ucred listener = {.pid = 0};
	socklen_t bytes = sizeof(listener);

	getsockopt(rbk->fd, SOL_SOCKET, SO_PEERCRED, &listener, &bytes);
	/*
	 * 0: the process is in no pid namespace that this process sees. 1: the service manager
	 * made the socket, and may be starting the broker still.
	 */
	if (listener.pid <= 1)
		return client_error(error, -ETIME, "the broker did not answer within %.3g s",
				    seconds);
	return client_error(error, -ETIME,
			    "the broker (process %d) is running, but did not answer within %.3g s",
			    (int)listener.pid, seconds);
}

int client_request(struct rbk *rbk, const struct client_message *message, struct client_answer *ret,
		   struct rbk_error *error)
{
	return client_request_for(rbk, message, 0, ret, error);
}

/*
 * Return true if the last broker left entries that have not completed, in any ring. Under the lock,
 * while there is no broker.
 */
static bool has_unfinished(const struct rbk *rbk)
{
	for (const struct client_ring_cold *cold = rbk->rings; cold; cold = cold->next) {
		const struct rbk_cq_area *cq = cold->area ? cold->area->cq_map : cold->cq_map;
		const struct rbk_task_record *records = rbk_ring_records(cq, cold->n_entries);
		const struct rbk_sq_area *sq = cold->sq_map;
		struct rbk_commit commit;

		rbk_commit_load(cq, &commit);
		if (rbk_ring_observe(&sq->sq_tail) != (uint32_t)commit.sq_head)
			return true;
		for (uint32_t i = 0; i < cold->n_entries; i++)
			if (rbk_record_is_live(&records[i], &commit))
				return true;
	}
	return false;
}

/*
 * Wait until the connection has a broker to which @message may be sent. Under the lock.
 * Return: 0; CLIENT_E_GONE; -ETIME, or the errno of a lost connection.
 */
static int wait_attached(struct rbk *rbk, const struct client_message *message,
			 uint64_t deadline_ns, uint64_t timeout_ns, struct rbk_error *error)
{
	struct timespec deadline = {(time_t)(deadline_ns / 1000000000u),
				    (long)(deadline_ns % 1000000000u)};
	int r = 0;

	while (rbk->reattach.is_away && message->repeat != CLIENT_BOUND && !r) {
		if (message->repeat == CLIENT_NEEDED && !has_unfinished(rbk))
			return CLIENT_E_IDLE;
		r = pthread_cond_timedwait(&rbk->changed, &rbk->lock, &deadline);
	}
	if (rbk->lost)
		return client_check(rbk, error);
	if (r && rbk->reattach.is_away)
		return client_error(error, -ETIME,
				    "the broker is gone, and no broker came back within %.3g s",
				    (double)timeout_ns / 1e9);
	if (message->repeat == CLIENT_BOUND &&
	    (rbk->reattach.is_away || rbk->reattach.n_done != message->generation))
		return CLIENT_E_GONE;
	return 0;
}

/*
 * Send a request once. Return: as client_request(); CLIENT_E_GONE whatever message->repeat is.
 */
static int request_once(struct rbk *rbk, const struct client_message *message, uint64_t deadline_ns,
			uint64_t timeout_ns, struct client_answer *ret, struct rbk_error *error)
{
	struct client_request *request;
	int r;

	request = request_new(message);
	if (!request)
		return client_error(error, -ENOMEM, "out of memory");
	ret->n_fds = 0;
	ret->operators = NULL;
	request->answer = ret;

	pthread_mutex_lock(&rbk->lock);
	r = wait_attached(rbk, message, deadline_ns, timeout_ns, error);
	request->generation = ret->generation = rbk->reattach.n_done;
	if (r) {
		pthread_mutex_unlock(&rbk->lock);
		free(request);
		return r;
	}
	if (message->number)
		*message->number_at = __atomic_load_n(message->number, __ATOMIC_RELAXED);
	request_keep(request, message);
	request->cookie = message->request->cookie = rbk->next_cookie++;
	request->next = rbk->requests;
	rbk->requests = request;
	rbk->reattach.n_sending++;
	pthread_mutex_unlock(&rbk->lock);

	r = send_message(rbk, message, 0);

	pthread_mutex_lock(&rbk->lock);
	/* The thread that restores the connection waits for this before it changes the socket. */
	if (--rbk->reattach.n_sending == 0 && rbk->reattach.is_away)
		pthread_cond_broadcast(&rbk->changed);
	if (r && !request_is_cut(rbk, request)) {
		client_error(&request->error, r, "cannot send to the broker: %m");
	} else if (wait_done(rbk, request, deadline_ns)) {
		r = no_answer(rbk, timeout_ns, error);
		request->abandoned = true;
		rbk->stalls = true;
		if (++rbk->n_abandoned > REQUESTS_ABANDONED_MAX)
			lose(rbk, -ECONNRESET);
		pthread_mutex_unlock(&rbk->lock);
		return r;
	} else if (request->done) {
		r = request->r;
	} else {
		r = rbk->lost ? client_check(rbk, &request->error) : CLIENT_E_GONE;
	}
	request_unlink(rbk, request);
	pthread_mutex_unlock(&rbk->lock);

	if (r < 0 && error)
		*error = request->error;
	free(request);
	return r;
}

/* Longest pause before a request is repeated. */
#define REPEAT_PAUSE_MAX_NS 200000000u

int client_may_repeat(uint64_t begin_ns, uint64_t timeout_ns, struct rbk_error *error)
{
	const uint64_t elapsed_ns = client_now_ns() - begin_ns;
	uint64_t pause_ns;

	if (elapsed_ns < timeout_ns) {
		/* Each repetition costs the broker a session: pause longer each time. */
		pause_ns = elapsed_ns / 16 < REPEAT_PAUSE_MAX_NS ? elapsed_ns / 16
								 : REPEAT_PAUSE_MAX_NS;
		nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
		return 0;
	}
	return client_error(error, -ETIME,
			    "the broker ended the connection before it answered, again and again "
			    "for %.3g s",
			    (double)timeout_ns / 1e9);
}

/* Send a request as client_request() does, for @timeout_ns from @begin_ns on. */
static int request_from(struct rbk *rbk, const struct client_message *message, uint64_t begin_ns,
			uint64_t timeout_ns, struct client_answer *ret, struct rbk_error *error)
{
	const uint64_t deadline_ns = client_deadline_ns(begin_ns, timeout_ns);
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	for (;;) {
		r = request_once(rbk, message, deadline_ns, timeout_ns, ret, error);
		if (r != CLIENT_E_GONE ||
		    (message->repeat != CLIENT_REPEAT && message->repeat != CLIENT_NEEDED))
			return r;
		r = client_may_repeat(begin_ns, timeout_ns, error);
		if (r)
			return r;
	}
}

int client_request_for(struct rbk *rbk, const struct client_message *message, uint64_t wait_ns,
		       struct client_answer *ret, struct rbk_error *error)
{
	uint64_t timeout_ns;

	if (__builtin_add_overflow(rbk->timeout_ns, wait_ns, &timeout_ns))
		timeout_ns = UINT64_MAX;
	return request_from(rbk, message, client_now_ns(), timeout_ns, ret, error);
}

/*
 * Read the answers that have arrived, unless another thread reads. Under the lock; does not wait.
 */
static void read_answers(struct rbk *rbk)
{
	struct packet packet;
	int r = 0;

	while (!rbk->reading && !rbk->lost && !rbk->reattach.is_away && !r) {
		r = receive_packet(rbk->fd, &packet);
		if (!r)
			deliver(rbk, &packet);
		else if (r != -EAGAIN)
			socket_failed(rbk, r);
		pthread_cond_broadcast(&rbk->changed);
	}
}

bool client_stalls(struct rbk *rbk)
{
	bool stalls;

	if (client_check(rbk, NULL))
		return false;
	pthread_mutex_lock(&rbk->lock);
	if (rbk->stalls)
		read_answers(rbk);
	stalls = rbk->stalls && !rbk->lost;
	pthread_mutex_unlock(&rbk->lock);
	return stalls;
}

int client_post(struct rbk *rbk, const struct client_message *message)
{
	int r = client_check(rbk, NULL);

	if (r)
		return r;
	pthread_mutex_lock(&rbk->lock);
	read_answers(rbk);
	r = client_check(rbk, NULL);
	/* The next broker is not told of it. */
	if (!r && !rbk->reattach.is_away && rbk->reattach.n_done == message->generation)
		r = rbk->n_abandoned < REQUESTS_POSTED_MAX ? send_abandoned(rbk, message) : -EBUSY;
	pthread_mutex_unlock(&rbk->lock);
	return r == -ETIME ? -EBUSY : r;
}

void client_remove_unlisted(struct rbk *rbk, uint32_t type, uint32_t id, uint32_t generation)
{
	struct rbk_wire_id request = {.request.type = type, .id = id};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = -1,
		.repeat = CLIENT_BOUND,
		.generation = generation,
	};
	struct client_answer answer;

	client_request(rbk, &message, &answer, NULL);
}

int client_remove(struct rbk *rbk, uint32_t type, uint32_t id, struct rbk_error *error)
{
	const uint64_t begin_ns = client_now_ns();
	struct rbk_wire_id request = {.request.type = type, .id = id};
	struct client_message message = {
		.request = &request.request,
		.request_bytes = sizeof(request),
		.fd = -1,
		.repeat = CLIENT_NEEDED,
	};
	struct client_answer answer;
	int r;

	if (client_is_child(rbk))
		return client_check(rbk, error);
	/*
	 * A broker that dies after its answer, before the object leaves its list, has a successor
	 * that knows the object again. After the deadline such a successor is told, but not
	 * awaited.
	 */
	do {
		answer.generation = __atomic_load_n(&rbk->reattach.n_done, __ATOMIC_ACQUIRE);
		r = request_from(rbk, &message, begin_ns, rbk->timeout_ns, &answer, error);
	} while (!client_objects_lock_for(rbk, answer.generation));
	return r == CLIENT_E_IDLE ? 0 : r;
}

uint32_t client_objects_lock(struct rbk *rbk)
{
	/* In a child, a thread that does not exist there may hold the lock for ever. */
	if (client_is_child(rbk))
		return 0;
	pthread_mutex_lock(&rbk->reattach.objects);
	return rbk->reattach.n_done;
}

void client_objects_unlock(struct rbk *rbk)
{
	if (!client_is_child(rbk))
		pthread_mutex_unlock(&rbk->reattach.objects);
}

bool client_objects_lock_for(struct rbk *rbk, uint32_t generation)
{
	if (client_objects_lock(rbk) == generation)
		return true;
	client_objects_unlock(rbk);
	return false;
}

void client_requests_free(struct rbk *rbk)
{
	while (rbk->requests) {
		struct client_request *request = rbk->requests;

		rbk->requests = request->next;
		free(request);
	}
}
