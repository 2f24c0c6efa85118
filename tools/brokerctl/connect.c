/* SPDX-License-Identifier: MIT */
/*
 * Connecting to the broker
 *
 * Administrators have a socket of their own. A user who may not use it, or a user of an older
 * broker without that socket, connects as an ordinary client and sees the own tenant; the broker
 * decides which requests are permitted. Every request has a timeout, so that a stopped broker is
 * distinguished from a missing one.
 */
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ringbroker/admin.h>
#include <ringbroker/stats.h>

#include "command.h"
#include "monitor/text.h"
#include "records.h"

#define SYSTEM_FOLDER "/run/ringbroker"

enum { PATH_BYTES = 512 };

#define RUN_TIMEOUT_NS 600000000000u

/* The library applies the same rules. */
void control_socket_path(const struct control *control, char *path, size_t bytes)
{
	const char *given = control->socket_path, *folder = getenv("XDG_RUNTIME_DIR");

	if (!given)
		given = getenv("RINGBROKER_SOCKET");
	if (given && given[0]) {
		snprintf(path, bytes, "%s", given);
		return;
	}
	if (folder && folder[0]) {
		snprintf(path, bytes, "%s/ringbroker/brokerd.sock", folder);
		if (access(path, F_OK) == 0)
			return;
	}
	snprintf(path, bytes, "%s/brokerd.sock", SYSTEM_FOLDER);
}

void control_admin_path(const struct control *control, char *path, size_t bytes)
{
	const char *socket_path = control->socket_path;

	if (socket_path && !socket_path[0])
		socket_path = NULL;
	if (control->admin_path && control->admin_path[0])
		snprintf(path, bytes, "%s", control->admin_path);
	else if (rbk_admin_socket_path(socket_path, path, bytes))
		/* The path is too long; connecting to it fails with that error. */
		control_socket_path(control, path, bytes);
}

const char *control_who_may(const struct control *control)
{
	char path[PATH_BYTES];

	control_admin_path(control, path, sizeof(path));
	return admin_socket_users(path);
}

const struct group *control_admin_group(const struct control *control)
{
	char path[PATH_BYTES];
	gid_t gid;

	control_admin_path(control, path, sizeof(path));
	return admin_socket_group(path, &gid) && gid != 0 ? getgrgid(gid) : NULL;
}

/* Report errors that mean the same while connecting and in requests. */
static int refused(const struct control *control, int error, const char *sentence)
{
	switch (error) {
	case -ETIME:
		return control_fail(EXIT_NO_BROKER,
				    "%s: it is starting or stopped, or has hung; --timeout=SECONDS "
				    "waits for longer",
				    sentence);
	case -EPROTONOSUPPORT:
		return control_fail(EXIT_FAILED,
				    "%s: install brokerctl (this is %s) and brokerd of one version",
				    sentence, RINGBROKER_VERSION);
	case -EPROTO:
		return control_fail(EXIT_FAILED,
				    "%s: is it of another version than this brokerctl (%s)?",
				    sentence, RINGBROKER_VERSION);
	}
	return control_fail(EXIT_FAILED, "%s", sentence);
}

static const char *sentence_of(int error, const struct rbk_error *text)
{
	if (error == -ETIME && !text->text[0])
		return "the broker did not answer in time";
	return text->text[0] ? text_name(text->text) : strerror(-error);
}

int control_refused(const struct control *control, int error, const struct rbk_error *text)
{
	const char *sentence = sentence_of(error, text);
	char reason[ADMIN_TEXT_BYTES];

	if (error == -ECONNRESET)
		return control_fail(EXIT_NO_BROKER, "%s", sentence);
	if (error != -EACCES && error != -EPERM)
		return refused(control, error, sentence);
	if (control->is_admin || !control->admin.r)
		return control_fail(EXIT_NOT_PERMITTED, "%s", sentence);
	admin_socket_explain(&control->admin, reason, sizeof(reason));
	return control_fail(EXIT_NOT_PERMITTED, "%s: %s", sentence, reason);
}

static bool is_said(const char *value)
{
	return value && value[0];
}

/* Return the option or variable that determines the path that was tried. */
static const char *path_source(const struct control *control)
{
	if (control->is_admin && is_said(control->admin_path))
		return "--admin-socket";
	if (is_said(control->socket_path))
		return "--socket";
	if (control->is_admin && is_said(getenv("RINGBROKER_ADMIN_SOCKET")))
		return "RINGBROKER_ADMIN_SOCKET";
	return !control->socket_path && is_said(getenv("RINGBROKER_SOCKET")) ? "RINGBROKER_SOCKET"
									     : "XDG_RUNTIME_DIR";
}

/* Report that @path could not be connected to. */
static int unreachable(const struct control *control, const char *path, int error,
		       const struct rbk_error *text)
{
	const char *sentence = sentence_of(error, text);

	switch (error) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ECONNRESET:
		return control_fail(EXIT_NO_BROKER, "%s", sentence);
	case -EACCES:
	case -EPERM:
		return control_fail(EXIT_NOT_PERMITTED, "%s: it is for root and %s", sentence,
				    admin_socket_users(path));
	case -ENAMETOOLONG:
		return control_fail(EXIT_USAGE, "%s: %s, which %s names", sentence, text_name(path),
				    path_source(control));
	}
	return refused(control, error, sentence);
}

static int connect_to(struct control *control, const char *path, bool is_admin,
		      struct rbk_error *error)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = path,
		.name = "brokerctl",
		.timeout_ns = control->timeout_ns,
		.flags = RBK_CONNECT_NO_REATTACH,
	};

	control->is_admin = is_admin;
	return is_admin ? rbk_admin_connect(&options, &control->rbk, error)
			: rbk_connect(&options, &control->rbk, error);
}

static int check_offers(struct control *control)
{
	if (rbk_features(control->rbk) & RBK_FEAT_STATS)
		return EXIT_OK;
	return control_fail(EXIT_FAILED, "this broker (%s) is older: it has no statistics pages",
			    text_name(rbk_broker_name(control->rbk)));
}

int control_connect_as_tenant(struct control *control)
{
	struct rbk_error error = {""};
	char path[PATH_BYTES];
	int r;

	if (control->rbk && !control->is_admin)
		return EXIT_OK;
	control_disconnect(control);
	control_socket_path(control, path, sizeof(path));
	r = connect_to(control, path, false, &error);
	return r ? unreachable(control, path, r, &error) : check_offers(control);
}

int control_connect_to_run(struct control *control, bool *ret_is_nobody_there)
{
	const char *named = getenv("RINGBROKER_SOCKET");
	struct rbk_error error = {""};
	char path[PATH_BYTES];
	int r;

	*ret_is_nobody_there = false;
	control_socket_path(control, path, sizeof(path));
	r = connect_to(control, path, false, &error);
	if (r == 0 && !control->has_timeout && control->timeout_ns < RUN_TIMEOUT_NS) {
		/*
		 * The broker answers. A connection has one timeout for all requests, so reconnect
		 * for a longer one.
		 */
		control_disconnect(control);
		control->timeout_ns = RUN_TIMEOUT_NS;
		r = connect_to(control, path, false, &error);
	}
	if ((r == -ENOENT || r == -ECONNREFUSED) && !control->socket_path) {
		/* A broker that the user names is not replaced by a private one. */
		if (named && named[0])
			return control_fail(EXIT_NO_BROKER,
					    "no broker listens at %s, which RINGBROKER_SOCKET "
					    "names: %s; without that variable one would be started "
					    "for this",
					    text_name(path), strerror(-r));
		*ret_is_nobody_there = true;
		return EXIT_NO_BROKER;
	}
	return r ? unreachable(control, path, r, &error) : EXIT_OK;
}

/* Return: as rbk_admin_connect(). */
static int try_admin(struct control *control)
{
	struct admin_attempt *attempt = &control->admin;

	*attempt = (struct admin_attempt){.r = 0};
	control_admin_path(control, attempt->path, sizeof(attempt->path));
	attempt->r = connect_to(control, attempt->path, true, &attempt->error);
	return attempt->r;
}

int control_connect(struct control *control)
{
	int r;

	if (control->rbk)
		return EXIT_OK;
	r = try_admin(control);
	if (r == 0)
		return check_offers(control);
	/* The user named this socket; or a broker exists but does not answer. */
	if (control->admin_path ||
	    (r != -ENOENT && r != -ECONNREFUSED && r != -EACCES && r != -EPERM))
		return unreachable(control, control->admin.path, r, &control->admin.error);
	return control_connect_as_tenant(control);
}

int control_connect_if_there(struct control *control, bool *ret_is_nobody_there)
{
	int r;

	*ret_is_nobody_there = false;
	if (control->rbk || control->admin_path)
		return control_connect(control);
	r = try_admin(control);
	if (r == -ENOENT || r == -ECONNREFUSED)
		return control_connect_to_run(control, ret_is_nobody_there);
	return r ? control_connect(control) : check_offers(control);
}

/* Report why this user may not do what administrators may. */
static int not_permitted(const struct control *control)
{
	char reason[ADMIN_TEXT_BYTES];

	admin_socket_explain(&control->admin, reason, sizeof(reason));
	return control_fail(EXIT_NOT_PERMITTED, "%s", reason);
}

int control_connect_as_admin(struct control *control)
{
	int status = control_connect(control);

	return status || control->is_admin ? status : not_permitted(control);
}

int control_connect_to_change(struct control *control)
{
	int status = control_connect_as_admin(control);

	if (status || (rbk_features(control->rbk) & RBK_FEAT_ADMIN_CHANGE))
		return status;
	return not_permitted(control);
}

/* --- Many --- */

int control_map(struct control *control, const char *tenant, struct pages *ret)
{
	struct rbk_error error = {""};
	struct pages root;
	int status = control_map_root(control, &root), r;

	if (status)
		return status;
	pages_unmap(&root);
	r = pages_map(control->rbk, tenant, ret, &error);
	return r ? control_refused(control, r, &error) : EXIT_OK;
}

int control_map_root(struct control *control, struct pages *ret)
{
	struct rbk_error error = {""};
	int status = control_connect(control), r;

	if (status)
		return status;
	r = pages_map_root(control->rbk, ret, &error);
	if (r)
		return control_refused(control, r, &error);
	if (ret->root.page)
		pages_await_listing(&ret->root);
	return EXIT_OK;
}

void control_disconnect(struct control *control)
{
	control->rbk = rbk_disconnect(control->rbk);
}
