/* SPDX-License-Identifier: MIT */
/*
 * Suggestions for operators that are not supported
 *
 * If another domain has the name, the domain is wrong. If the name is similar to that of an
 * operator, or begins with it, the name was misspelt, unless ONNX has an operator of that name: it
 * is then missing in the catalogue.
 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "libclient/onnx/canon.h"

enum { NEAREST_MAX_BYTES = 40, NEAREST_MIN_BEGIN = 4 };

static const char *const others[] = {CANON_OTHERS};

/* Return the operator's name without its domain. */
static const char *bare_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

static unsigned int least(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/*
 * Return the number of letters to insert, delete or replace, ignoring case. @b must have at most
 * NEAREST_MAX_BYTES letters.
 */
static unsigned int letters_apart(const char *a, const char *b)
{
	unsigned int row[NEAREST_MAX_BYTES + 1];
	const size_t n = strlen(b);

	for (unsigned int k = 0; k <= n; k++)
		row[k] = k;
	for (; *a; a++) {
		unsigned int diagonal = row[0]++;

		for (size_t k = 1; k <= n; k++) {
			const bool differs =
				tolower((unsigned char)*a) != tolower((unsigned char)b[k - 1]);
			const unsigned int way =
				least(least(row[k], row[k - 1]) + 1, diagonal + differs);

			diagonal = row[k];
			row[k] = way;
		}
	}
	return row[n];
}

static const char *same_elsewhere(const struct canon *rows, size_t n_rows, const char *op)
{
	for (size_t i = 0; i < n_rows; i++)
		/* Match also an op_type that includes the domain. */
		if (!strcmp(bare_name(rows[i].op), op) || !strcmp(rows[i].op, op))
			return rows[i].op;
	return NULL;
}

static bool is_of_onnx(const char *op)
{
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (!strcmp(others[i], op))
			return true;
	return false;
}

/* Return: the row's name with its domain, or NULL. */
static const char *nearest(const struct canon *rows, size_t n_rows, const char *op)
{
	unsigned int best = (unsigned int)(strlen(op) + 3) / 4 + 1;
	const char *near = NULL, *begins = NULL;
	size_t longest = NEAREST_MIN_BEGIN - 1;

	if (strlen(op) >= NEAREST_MAX_BYTES)
		return NULL;
	for (size_t i = 0; i < n_rows; i++) {
		const char *name = bare_name(rows[i].op);
		const size_t n = strlen(name);
		unsigned int apart;

		if (n > longest && !strncasecmp(op, name, n)) {
			longest = n;
			begins = rows[i].op;
		}
		apart = n < NEAREST_MAX_BYTES ? letters_apart(op, name) : best;
		if (apart < best && apart < n) {
			best = apart;
			near = rows[i].op;
		}
	}
	return near ? near : begins;
}

void nearest_refuse(struct graph *graph, const struct canon *rows, size_t n_rows, bool knows_domain)
{
	const struct model_node *node = graph->node;
	const char *op = node->proto->op_type, *other = same_elsewhere(rows, n_rows, op), *dot;

	dot = other ? strrchr(other, '.') : NULL;
	if (dot && !strncmp(node->domain, other, (size_t)(dot - other)) &&
	    !node->domain[dot - other])
		graph_refuse(graph,
			     "op_type must be \"%s\", without the domain, because the node gives "
			     "its domain separately",
			     dot + 1);
	else if (dot)
		graph_refuse(graph,
			     "there is no such operator in the catalogue, but one of domain "
			     "\"%.*s\": the node must name that domain",
			     (int)(dot - other), other);
	else if (other)
		graph_refuse(graph,
			     "there is no such operator of domain \"%s\" in the catalogue; ONNX's "
			     "own %s, whose nodes name no domain, is another operator",
			     node->domain, other);
	else if (!knows_domain)
		graph_refuse(graph, "operators of domain \"%s\" are not in the catalogue",
			     node->domain);
	else if ((node->domain[0] || !is_of_onnx(op)) && (other = nearest(rows, n_rows, op)))
		graph_refuse(graph, "there is no such operator%s; did you mean %s?",
			     node->domain[0] ? " of its domain in the catalogue" : "", other);
	else
		graph_refuse(graph, "there is no such operator in the catalogue%s%s%s",
			     node->domain[0] ? " (of domain \"" : "", node->domain,
			     node->domain[0] ? "\")" : "");
}
