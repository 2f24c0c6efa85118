/* SPDX-License-Identifier: MIT */
/*
 * Requests on the control socket
 *
 * Any number of threads make requests at the same time, and the broker answers in any order: a plan
 * takes long to prepare, and other requests need not wait for it. The library has no thread, so one
 * of the waiting threads reads for all. It receives an answer, delivers it to the request with that
 * cookie, and wakes all waiters. After its own answer another waiter takes over. Sending needs no
 * lock, because a packet is sent whole.
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
 * that wait for answers, and shuts down the bells, which wakes the threads that sleep in a ring.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "libclient/private.h"

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

/* Mark the connection as lost, and wake all threads that use it. Under the lock. */
static void lose(struct rbk *rbk, int r)
{
	if (rbk->lost)
		return;
	__atomic_store_n(&rbk->lost, r, __ATOMIC_RELEASE);
	shutdown(rbk->fd, SHUT_RDWR);
	for (struct client_ring_cold *ring = rbk->rings; ring; ring = ring->next)
		shutdown(ring->bell, SHUT_RDWR);
	pthread_cond_broadcast(&rbk->changed);
}

void client_lose(struct rbk *rbk, int r)
{
	pthread_mutex_lock(&rbk->lock);
	lose(rbk, r);
	pthread_mutex_unlock(&rbk->lock);
}

int client_check(const struct rbk *rbk, struct rbk_error *error)
{
	int r;

	if (client_is_child(rbk))
		return client_error(error, -ECHILD,
				    "the connection belongs to the parent process: connect again "
				    "in the child");
	r = __atomic_load_n(&rbk->lost, __ATOMIC_ACQUIRE);
	if (r == -EPROTO)
		return client_error(error, r, "the broker sent an answer that breaks the protocol");
	if (r)
		return client_error(error, r, "the broker is gone, or it ended this session");
	return 0;
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
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec parts[2] = {
		{message->request, message->request_bytes},
		{(void *)message->tail, message->tail_bytes},
	};
	struct msghdr header = {.msg_iov = parts, .msg_iovlen = message->tail_bytes ? 2 : 1};
	ssize_t n;

	if (message->fd >= 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof(control.bytes);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &message->fd, sizeof(int));
	}
	do
		n = sendmsg(rbk->fd, &header, MSG_NOSIGNAL | flags);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EPIPE && errno != ECONNRESET)
		return errno == EAGAIN ? -ETIME : -errno;
	return 0;
}

/* Return: 0; -EAGAIN if there is no answer; -ECONNRESET, -EPROTO: the connection is lost. */
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
		return errno == EAGAIN ? -EAGAIN : -ECONNRESET;

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

/* Wait until the socket is readable. Return: 0; -ETIME; -ECONNRESET if waiting fails. */
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
			return -ECONNRESET;
	}
}

/* Copy the parts of a message that its answer needs. Return: NULL without memory. */
static struct client_request *request_new(const struct client_message *message)
{
	struct client_request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->type = message->request->type;
	request->owed_bytes = message->owed_bytes;
	if (request->type == RBK_WIRE_LEASE_CREDIT)
		memcpy(&request->credit, message->request, sizeof(request->credit));
	if (request->type == RBK_WIRE_LEASE_OBJECT)
		memcpy(&request->object, message->request, sizeof(request->object));
	return request;
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
	request->cookie = message->request->cookie = rbk->next_cookie++;
	r = send_message(rbk, message, MSG_DONTWAIT);
	if (r) {
		free(request);
		return r;
	}
	request->abandoned = true;
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
		if (!request->done && packet->n_bytes >= sizeof(struct rbk_wire_reply) &&
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
 * Return: 0 if the request is done or the connection lost; -ETIME.
 */
static int wait_done(struct rbk *rbk, struct client_request *request, uint64_t deadline_ns)
{
	struct timespec deadline = {(time_t)(deadline_ns / 1000000000u),
				    (long)(deadline_ns % 1000000000u)};
	struct packet packet;
	int r = 0;

	while (!request->done && !rbk->lost && r != -ETIME) {
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

		if (!r)
			deliver(rbk, &packet);
		else if (r != -ETIME && r != -EAGAIN)
			lose(rbk, r);
		pthread_cond_broadcast(&rbk->changed);
	}
	return request->done || rbk->lost ? 0 : -ETIME;
}

/* Report a timeout, and name the process that owes the answer. Return: -ETIME. */
static int no_answer(const struct rbk *rbk, uint64_t timeout_ns, struct rbk_error *error)
{
	const double seconds = (double)timeout_ns / 1e9;
	struct ucred listener = {.pid = 0};
	socklen_t bytes = sizeof(listener);

	getsockopt(rbk->fd, SOL_SOCKET, SO_PEERCRED, &listener, &bytes);
	/* 0: the process is in no pid namespace that this process sees. */
	if (listener.pid <= 0)
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

int client_request_for(struct rbk *rbk, const struct client_message *message, uint64_t wait_ns,
		       struct client_answer *ret, struct rbk_error *error)
{
	struct client_request *request;
	uint64_t timeout_ns, deadline_ns;
	int r;

	r = client_check(rbk, error);
	if (r)
		return r;
	request = request_new(message);
	if (!request)
		return client_error(error, -ENOMEM, "out of memory");
	ret->n_fds = 0;
	ret->operators = NULL;
	request->answer = ret;
	if (__builtin_add_overflow(rbk->timeout_ns, wait_ns, &timeout_ns))
		timeout_ns = UINT64_MAX;
	deadline_ns = client_deadline_ns(timeout_ns);

	pthread_mutex_lock(&rbk->lock);
	request->cookie = message->request->cookie = rbk->next_cookie++;
	request->next = rbk->requests;
	rbk->requests = request;
	pthread_mutex_unlock(&rbk->lock);

	r = send_message(rbk, message, 0);

	pthread_mutex_lock(&rbk->lock);
	if (r) {
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
		r = client_check(rbk, &request->error);
	}
	request_unlink(rbk, request);
	pthread_mutex_unlock(&rbk->lock);

	if (r && error)
		*error = request->error;
	free(request);
	return r;
}

/*
 * Read the answers that have arrived, unless another thread reads. Under the lock; does not wait.
 */
static void read_answers(struct rbk *rbk)
{
	struct packet packet;
	int r = 0;

	while (!rbk->reading && !rbk->lost && !r) {
		r = receive_packet(rbk->fd, &packet);
		if (!r)
			deliver(rbk, &packet);
		else if (r != -EAGAIN)
			lose(rbk, r);
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
	if (!r)
		r = rbk->n_abandoned < REQUESTS_POSTED_MAX ? send_abandoned(rbk, message) : -EBUSY;
	pthread_mutex_unlock(&rbk->lock);
	return r == -ETIME ? -EBUSY : r;
}

int client_request_id(struct rbk *rbk, uint32_t type, uint32_t id, struct rbk_error *error)
{
	struct rbk_wire_id request = {.request.type = type, .id = id};
	struct client_message message = {&request.request, sizeof(request), NULL, 0, -1};
	struct client_answer answer;

	return client_request(rbk, &message, &answer, error);
}

void client_requests_free(struct rbk *rbk)
{
	while (rbk->requests) {
		struct client_request *request = rbk->requests;

		rbk->requests = request->next;
		free(request);
	}
}
