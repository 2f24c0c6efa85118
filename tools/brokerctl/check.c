/* SPDX-License-Identifier: MIT */
/*
 * brokerctl check: what this machine lacks, why it matters, and how to repair it
 *
 * The check begins with the connection to the broker and goes on with the machine. A running broker
 * names its process, whose rights and limits are then checked. The check changes nothing.
 */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ringbroker/admin.h>
#include <ringbroker/stats.h>

#include "command.h"
#include "doctor.h"
#include "exec.h"
#include "gate.h"
#include "output.h"
#include "records.h"

enum { PATH_BYTES = 512 };

struct checkup {
	struct control *control;
	struct doctor doctor;
	bool is_json;
	unsigned int n[HEALTH_SKIP + 1];
};

static void report(struct checkup *checkup, const struct finding *finding)
{
	static const enum mark marks[] = {
		[HEALTH_OK] = MARK_GOOD,
		[HEALTH_WARN] = MARK_NOTE,
		[HEALTH_FAIL] = MARK_FAULT,
		[HEALTH_SKIP] = MARK_NONE,
	};

	checkup->n[finding->health]++;
	if (checkup->is_json) {
		json_begin();
		json_string("type", "check");
		json_string("check", finding->name);
		json_string("health", health_name(finding->health));
		json_string("text", finding->text);
		json_string("why", finding->why);
		json_string("mend", finding->mend);
		json_end();
		return;
	}
	printf("%s%-4s%s  %-15s %s\n", mark_begin(marks[finding->health]),
	       health_name(finding->health), mark_end(marks[finding->health]), finding->name,
	       text_name(finding->text));
	if (finding->health == HEALTH_OK || finding->health == HEALTH_SKIP)
		return;
	printf("                      it matters: %s\n", finding->why);
	if (finding->mend[0])
		printf("                      to mend:    %s\n", text_name(finding->mend));
}

/* --- The way to the broker --- */

static int connect_to(const struct control *control, const char *path, bool is_admin,
		      struct rbk **ret, struct rbk_error *error)
{
	const struct rbk_options options = {
		.size = sizeof(options),
		.socket_path = path,
		.name = "brokerctl",
		.timeout_ns = control->timeout_ns,
		.flags = RBK_CONNECT_NO_REATTACH,
	};

	return is_admin ? rbk_admin_connect(&options, ret, error)
			: rbk_connect(&options, ret, error);
}

static const char service_folder[] = "/run/ringbroker/";

/*
 * Return true if the socket that was tried is that of an installed brokerd.service, so that
 * systemctl applies. @path receives the socket's path.
 */
static bool is_of_service(const struct checkup *checkup, char path[PATH_BYTES])
{
	control_socket_path(checkup->control, path, PATH_BYTES);
	return strncmp(path, service_folder, strlen(service_folder)) == 0 &&
	       doctor_has_unit(&checkup->doctor, "brokerd.service");
}

/* Return the command that starts a broker on the socket that was tried. */
static const char *mend_start(const struct checkup *checkup, char mend[FINDING_BYTES])
{
	char path[PATH_BYTES];

	if (is_of_service(checkup, path))
		return "systemctl start brokerd.service";
	snprintf(mend, FINDING_BYTES, "brokerd --socket %s", text_name(path));
	return mend;
}

/* Return the command that restarts the broker, which does not answer. */
static const char *mend_restart(const struct checkup *checkup, char mend[FINDING_BYTES])
{
	char path[PATH_BYTES];

	if (is_of_service(checkup, path))
		return "systemctl restart brokerd.service";
	snprintf(mend, FINDING_BYTES, "kill the process that %s.lock names; brokerd --socket %s",
		 text_name(path), text_name(path));
	return mend;
}

/* Return true unless the result of a connection says that no broker listens at the path. */
static bool is_of_broker(int r)
{
	switch (r) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -ENAMETOOLONG:
	case -ENOTDIR:
	case -ELOOP:
	case -EPROTOTYPE:
		return false;
	default:
		return true;
	}
}

/* Return the remedy for a connection, to the administrators' socket or not, that failed with @r. */
static const char *mend_connection(const struct checkup *checkup, bool is_admin, int r,
				   char mend[FINDING_BYTES])
{
	switch (r) {
	case -ENOENT:
	case -ECONNREFUSED:
		return mend_start(checkup, mend);
	case -ETIME:
		return mend_restart(checkup, mend);
	case -EDQUOT:
		if (is_admin)
			return "end other programs that use the administrators' socket";
		return "end sessions of this tenant, or raise the limit that the sentence names; "
		       "see brokerd.conf(5)";
	case -EMFILE:
		return "raise the limit of open files: brokerd's by LimitNOFILE= in its unit, or, "
		       "if this program cannot make a socket, its own by ulimit -n";
	case -EAGAIN:
		return "check again, when the broker has served the other connections of this user";
	case -EPROTONOSUPPORT:
	case -EPROTO:
		return "install brokerctl (this is " RINGBROKER_VERSION
		       ") and brokerd of one version";
	case -ECONNRESET:
		return "check again; if it ends the connection again, see the log of brokerd";
	case -ENAMETOOLONG:
	case -ENOTDIR:
	case -ELOOP:
	case -EPROTOTYPE:
		if (is_admin)
			return "name the socket with --admin-socket or RINGBROKER_ADMIN_SOCKET";
		return "name the socket of a broker with --socket or RINGBROKER_SOCKET";
	default:
		return "remove the cause that the sentence names, and check again";
	}
}

static void check_socket(struct checkup *checkup, const struct rbk *rbk, int r,
			 const struct rbk_error *error)
{
	struct finding finding = {
		.name = "socket",
		.why = "clients reach the broker through it",
	};
	char mend[FINDING_BYTES];

	if (rbk)
		finding_set(&finding, HEALTH_OK, "", "%s answers", rbk_broker_name(rbk));
	else if (r == -EACCES || r == -EPERM)
		finding_set(&finding, HEALTH_FAIL,
			    "add this user to the socket's group, or see --socket-mode of "
			    "brokerd(8)",
			    "%s", error->text);
	else if (r == -ETIME)
		finding_set(&finding, HEALTH_FAIL, mend_restart(checkup, mend),
			    "the broker does not answer: it is stopped, or has hung");
	else
		finding_set(&finding, HEALTH_FAIL, mend_connection(checkup, false, r, mend), "%s",
			    error->text);
	report(checkup, &finding);
}

/* Return the command that gives this user access to the administrators' socket. */
static const char *mend_admin(const struct checkup *checkup, char mend[FINDING_BYTES])
{
	const struct group *group = control_admin_group(checkup->control);
	char group_name[128] = "ringbroker", user[128], path[PATH_BYTES];
	const struct passwd *passwd;

	if (group)
		snprintf(group_name, sizeof(group_name), "%s", text_name(group->gr_name));
	passwd = getpwuid(getuid());
	if (passwd)
		snprintf(user, sizeof(user), "%s", text_name(passwd->pw_name));
	else
		snprintf(user, sizeof(user), "%u", (unsigned int)getuid());
	if (!group && !is_of_service(checkup, path)) {
		snprintf(mend, FINDING_BYTES, "restart brokerd with --admin-users %s", user);
		return mend;
	}
	/* If the group does not exist, brokerd gives the socket to no group; see --admin-group. */
	snprintf(mend, FINDING_BYTES, "%susermod -aG %s %s%s, and log in again",
		 group ? "" : "groupadd --force --system ringbroker; ", group_name, user,
		 group ? "" : "; systemctl restart brokerd.service");
	return mend;
}

/* Report who may use the administrators' socket. @is_running: a broker has the clients' socket. */
static void check_admin(struct checkup *checkup, const struct rbk *rbk,
			const struct admin_attempt *attempt, bool is_running)
{
	const int r = attempt->r;
	struct finding finding = {
		.name = "administrators",
		.why = "their socket shows the whole broker, and changes it",
	};
	char mend[FINDING_BYTES], cause[FINDING_BYTES];

	admin_socket_cause(attempt, cause, sizeof(cause));
	if (rbk && rbk_features(rbk) & RBK_FEAT_ADMIN_CHANGE)
		finding_set(&finding, HEALTH_OK, "", "this user may read and change everything");
	else if (rbk)
		finding_set(&finding, HEALTH_OK, "",
			    "this user may read everything, but change nothing");
	else if (r == -EACCES || r == -EPERM)
		finding_set(&finding, HEALTH_WARN, mend_admin(checkup, mend), "%s", cause);
	else if (is_running && (r == -ENOENT || r == -ECONNREFUSED))
		finding_set(&finding, HEALTH_WARN, admin_socket_remedy(attempt), "%s", cause);
	else
		finding_set(&finding, HEALTH_WARN, mend_connection(checkup, true, r, mend), "%s",
			    attempt->error.text);
	report(checkup, &finding);
}

static void check_version(struct checkup *checkup, const struct rbk *rbk)
{
	const char *version = rbk ? strrchr(rbk_broker_name(rbk), ' ') : NULL;
	struct finding finding = {
		.name = "version",
		.why = "the older one of the two lacks features of the other",
	};

	if (!version)
		finding_set(&finding, HEALTH_SKIP, "", "not known: no broker tells its version");
	else if (strcmp(version + 1, RINGBROKER_VERSION) == 0)
		finding_set(&finding, HEALTH_OK, "", "both are %s", RINGBROKER_VERSION);
	else
		finding_set(&finding, HEALTH_WARN,
			    doctor_is_service(&checkup->doctor)
				    ? "apt-get install ringbroker; systemctl restart "
				      "brokerd.service"
				    : "start the brokerd that this brokerctl came with",
			    "the broker is%s, this brokerctl %s", version, RINGBROKER_VERSION);
	report(checkup, &finding);
}

/* Read from the broker's statistics page its process, devices and probes. */
static void ask_broker(struct checkup *checkup, struct rbk *rbk, bool is_admin)
{
	struct doctor *doctor = &checkup->doctor;
	struct rbk_stats_contention contention;
	struct rbk_stats_upkeep upkeep;
	struct rbk_stats_device device;
	struct rbk_stats_view view;
	struct rbk_error error;
	bool has_one = false;
	int r = rbk_stats_map(rbk, is_admin ? RBK_STATS_ALL : RBK_STATS_OWN, 0, &view, &error);

	if (r)
		return;
	doctor->pid = (pid_t)view.page->pid;
	doctor->has_devices = true;
	doctor->imports_host = true;
	for (uint32_t i = 0; i < rbk_stats_count(&view, RBK_STATS_SECTION_DEVICES); i++) {
		device_copy(&view, i, &device);
		if (device.kind == RBK_DEVICE_KIND_CPU)
			continue;
		/* The name of a GPU takes precedence. */
		if (!has_one || (device.kind == RBK_DEVICE_KIND_GPU && !doctor->has_gpu))
			snprintf(doctor->gpu, sizeof(doctor->gpu), "%s", device.name);
		has_one = true;
		doctor->has_gpu |= device.kind == RBK_DEVICE_KIND_GPU;
		doctor->has_software_gpu |= device.kind == RBK_DEVICE_KIND_SOFTWARE_GPU;
		doctor->uses_udmabuf |= strstr(device.paths, "udmabuf") != NULL;
		if (!strstr(device.paths, "host-import"))
			doctor->imports_host = false;
	}
	doctor->imports_host &= has_one;
	contention_copy(&view, &contention);
	/* Only the root page reports the source of contention figures. */
	doctor->knows_probes = is_admin;
	doctor->has_probes = contention.source == RBK_STATS_SOURCE_EBPF;
	doctor->knows_upkeep = is_admin && upkeep_copy(&view, &upkeep);
	if (doctor->knows_upkeep)
		doctor->sandbox = upkeep.sandbox;
	rbk_stats_unmap(&view);
}

static void check_broker(struct checkup *checkup)
{
	const struct control *control = checkup->control;
	struct admin_attempt attempt = {.r = 0};
	struct rbk *rbk = NULL, *admin = NULL;
	struct rbk_error error = {""};
	char path[PATH_BYTES];
	int r;

	control_socket_path(control, path, sizeof(path));
	r = connect_to(control, path, false, &rbk, &error);
	attempt.r = r;
	attempt.error = error;
	control_admin_path(control, attempt.path, sizeof(attempt.path));
	/* Do not wait twice for a broker that does not answer. */
	if (r != -ETIME)
		attempt.r = connect_to(control, attempt.path, true, &admin, &attempt.error);
	if (rbk || admin)
		ask_broker(checkup, admin ? admin : rbk, admin);
	check_socket(checkup, rbk, r, &error);
	check_admin(checkup, admin, &attempt, is_of_broker(r));
	check_version(checkup, rbk ? rbk : admin);
	rbk_disconnect(rbk);
	rbk_disconnect(admin);
}

/* --- The gate --- */

/* Return the command that sets up the gate again after its cgroup was removed. */
static const char *mend_gate(const struct checkup *checkup, const struct gate_view *gate,
			     char mend[FINDING_BYTES])
{
	static const char unit[] = "ringbroker-gate.service";

	/* The cgroup that the unit closes by default. */
	if (strcmp(gate->record.path, "/user.slice") == 0 &&
	    doctor_has_unit(&checkup->doctor, unit))
		snprintf(mend, FINDING_BYTES, "systemctl restart %s", unit);
	else
		snprintf(mend, FINDING_BYTES, "brokerctl gate on --cgroup=%s, when it exists again",
			 gate_name(gate));
	return mend;
}

static void judge_gates(const struct checkup *checkup, const struct gate_views *gates,
			const char *over, struct finding *finding)
{
	const char *start;
	char mend[FINDING_BYTES], other[FINDING_BYTES];
	uint64_t n_refused = 0;

	if (!gates->may_look && !over[0]) {
		finding_set(finding, HEALTH_OK, "",
			    "there is a gate; only administrators may see its cgroup");
		return;
	}
	for (unsigned int i = 0; i < gates->n; i++) {
		n_refused += gates->gates[i].record.n_refused;
		if (!gates->gates[i].is_gone)
			continue;
		finding_set(finding, HEALTH_WARN, mend_gate(checkup, &gates->gates[i], mend),
			    "the gate of %s is gone with its cgroup", gate_name(&gates->gates[i]));
		return;
	}
	if (gates->knows_holders && !gates->broker) {
		start = mend_start(checkup, other);
		snprintf(mend, sizeof(mend),
			 "%.300s; or, to open GPUs to all programs, brokerctl gate off", start);
		finding_set(finding, HEALTH_WARN, mend,
			    "%s is closed, and no broker lets leases pass",
			    gate_name(&gates->gates[0]));
	} else if (over[0]) {
		finding_set(finding, HEALTH_OK, "",
			    "programs of this shell are behind the gate of %s: brokerctl exec lets "
			    "them pass",
			    text_name(over));
	} else {
		finding_set(finding, HEALTH_OK, "", "%s%s, closed to programs without a lease; %s",
			    gate_name(&gates->gates[0]), gates->n > 1 ? " and others" : "",
			    n_refused == 0 ? "no program was refused"
			    : gates->n > 1 ? "brokerctl gate status lists the refused programs"
					   : gate_count_text(&gates->gates[0].record));
	}
}

static void check_gate(struct checkup *checkup)
{
	struct finding finding = {
		.name = "device-gate",
		.why = "it keeps programs without a lease from opening GPUs",
	};
	struct gate_views *gates = malloc(sizeof(*gates));
	char over[PATH_MAX];

	if (!gates)
		return;
	if (!gate_is_over_self(checkup->control, over))
		over[0] = '\0';
	gate_views_read(checkup->control, gates);
	if (gates->is_there && (gates->n || !gates->may_look))
		judge_gates(checkup, gates, over, &finding);
	else
		finding_set(&finding, HEALTH_OK, "",
			    "there is no gate: programs also open GPUs without a lease");
	report(checkup, &finding);
	free(gates);
}

/* --- The layer --- */

static void check_layer(struct checkup *checkup)
{
	struct finding finding = {
		.name = "vulkan-layer",
		.why = "it limits programs that use Vulkan themselves to their leases",
	};
	char text[EXEC_TEXT_BYTES];
	const char *mend;

	switch (exec_layer_find(text, &mend)) {
	case EXEC_LAYER_WORKS:
		finding_set(&finding, HEALTH_OK, "", "the layer of %s", text);
		break;
	case EXEC_LAYER_ABSENT:
		/* Only programs that use Vulkan themselves need it: nothing is broken. */
		finding_set(&finding, HEALTH_SKIP, "", "%s", text);
		break;
	case EXEC_LAYER_OFF:
	case EXEC_LAYER_BROKEN:
		finding_set(&finding, HEALTH_WARN, mend, "%s", text);
		break;
	}
	report(checkup, &finding);
}

int run_check(struct control *control, const struct arguments *arguments)
{
	struct checkup checkup = {
		.control = control,
		.doctor = {.root = ""},
		.is_json = arguments->values[OPT_JSON],
	};
	struct finding finding;

	check_broker(&checkup);
	for (unsigned int i = 0; i < doctor_count(); i++) {
		doctor_check(&checkup.doctor, i, &finding);
		report(&checkup, &finding);
	}
	check_layer(&checkup);
	check_gate(&checkup);
	if (!checkup.is_json)
		printf("\n"
		       "%u checks passed, %u could be better, %u failed, %u could not be made or "
		       "are not needed\n",
		       checkup.n[HEALTH_OK], checkup.n[HEALTH_WARN], checkup.n[HEALTH_FAIL],
		       checkup.n[HEALTH_SKIP]);
	return checkup.n[HEALTH_FAIL] ? EXIT_FAILED : EXIT_OK;
}
