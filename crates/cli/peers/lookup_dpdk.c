/* Longest-prefix match by DPDK, for `lastmeter bench lookup`.
 *
 * lookup_dpdk EAL-OPTIONS -- STRUCTURE TABLE ADDRESSES SECONDS
 *
 * STRUCTURE: `rte_fib` (DIR-24-8) or `rte_fib6` (trie), both with next hops of 4 bytes and AVX-512 where the
 * processor has it; `rte_lpm` (next hops of 24 bits, four addresses at once) or `rte_lpm6` (21 bits). For
 * prefixes longer than 24 bits, IPv4 has 8,192 groups of 256 entries; rte_lpm6 has one more for every two
 * prefixes, rte_fib6 two more for each.
 *
 * TABLE: lines of `ADDRESS/LEN HOP`. ADDRESSES: IPv4 32-bit words in host byte order, IPv6 16 bytes each.
 * Prints one line of JSON: lookups per CPU second, 64 at a time; updates (deletes and adds) per CPU second, 0
 * where they are not measured; bytes of DPDK's heap; the sum of all next hops of one pass, which every
 * implementation must reproduce; CPU seconds that loading took. Or why there is no result:
 * {"missing": "..."}. */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <rte_malloc.h>
#include <rte_vect.h>

#define BATCH 64
#define GROUPS 8192
/* Limit on loading, in multiples of a measurement's time: for each rule that it adds, rte_lpm searches all
 * rules of the same length. */
#define LOADING_MAX 120

struct route {
	uint8_t ip[16]; /* An IPv4 address is a word in host byte order. */
	uint32_t hop;
	uint8_t len;
};

/* The operations of a structure. Those that return an int return 0 on success. */
struct structure {
	const char *name;
	bool v6, updates;
	uint32_t hop_max;
	int (*create)(size_t routes);
	int (*add)(const struct route *route);
	int (*delete)(const struct route *route);
	uint64_t (*batch)(uint8_t *addresses);
};

static struct rte_fib *fib;
static struct rte_fib6 *fib6;
static struct rte_lpm *lpm;
static struct rte_lpm6 *lpm6;

static uint32_t word(const struct route *route)
{
	uint32_t word;

	memcpy(&word, route->ip, 4);
	return word;
}

static int fib_create(size_t routes)
{
	struct rte_fib_conf conf = {
		.type = RTE_FIB_DIR24_8,
		.max_routes = routes,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_4B, .num_tbl8 = GROUPS },
	};

	fib = rte_fib_create("table", 0, &conf);
	if (!fib)
		return 1;
	/* The fastest that this processor supports; scalar without AVX-512. */
	if (rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512))
		return rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
	return 0;
}

static int fib_add(const struct route *route)
{
	return rte_fib_add(fib, word(route), route->len, route->hop);
}

static int fib_delete(const struct route *route)
{
	return rte_fib_delete(fib, word(route), route->len);
}

static uint64_t fib_batch(uint8_t *addresses)
{
	uint64_t hops[BATCH], sum = 0;

	rte_fib_lookup_bulk(fib, (uint32_t *)addresses, hops, BATCH);
	for (int i = 0; i < BATCH; i++)
		sum += hops[i];
	return sum;
}

static int fib6_create(size_t routes)
{
	struct rte_fib6_conf conf = {
		.type = RTE_FIB6_TRIE,
		.max_routes = routes,
		/* It reserves groups for each route as if none were shared. */
		.trie = { .nh_sz = RTE_FIB6_TRIE_4B, .num_tbl8 = GROUPS + 2 * routes },
	};

	fib6 = rte_fib6_create("table", 0, &conf);
	if (!fib6)
		return 1;
	if (rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512))
		return rte_fib6_select_lookup(fib6, RTE_FIB6_LOOKUP_TRIE_SCALAR);
	return 0;
}

static int fib6_add(const struct route *route)
{
	return rte_fib6_add(fib6, route->ip, route->len, route->hop);
}

static int fib6_delete(const struct route *route)
{
	return rte_fib6_delete(fib6, route->ip, route->len);
}

static uint64_t fib6_batch(uint8_t *addresses)
{
	uint64_t hops[BATCH], sum = 0;

	rte_fib6_lookup_bulk(fib6, (uint8_t (*)[16])addresses, hops, BATCH);
	for (int i = 0; i < BATCH; i++)
		sum += hops[i];
	return sum;
}

static int lpm_create(size_t routes)
{
	struct rte_lpm_config conf = { .max_rules = routes, .number_tbl8s = GROUPS };

	lpm = rte_lpm_create("table", 0, &conf);
	return !lpm;
}

static int lpm_add(const struct route *route)
{
	return rte_lpm_add(lpm, word(route), route->len, route->hop);
}

static uint64_t lpm_batch(uint8_t *addresses)
{
	uint32_t hops[4];
	uint64_t sum = 0;

	for (int i = 0; i < BATCH; i += 4) {
		rte_lpm_lookupx4(lpm, _mm_loadu_si128((__m128i *)(addresses + 4 * i)), hops, 0);
		sum += (uint64_t)hops[0] + hops[1] + hops[2] + hops[3];
	}
	return sum;
}

static int lpm6_create(size_t routes)
{
	struct rte_lpm6_config conf = {
		.max_rules = routes,
		.number_tbl8s = GROUPS + routes / 2,
	};

	lpm6 = rte_lpm6_create("table", 0, &conf);
	return !lpm6;
}

static int lpm6_add(const struct route *route)
{
	return rte_lpm6_add(lpm6, route->ip, route->len, route->hop);
}

static uint64_t lpm6_batch(uint8_t *addresses)
{
	int32_t hops[BATCH];
	uint64_t sum = 0;

	rte_lpm6_lookup_bulk_func(lpm6, (uint8_t (*)[16])addresses, hops, BATCH);
	for (int i = 0; i < BATCH; i++)
		sum += hops[i] < 0 ? 0 : hops[i];
	return sum;
}

static const struct structure structures[] = {
	{ "rte_fib", false, true, UINT32_MAX >> 1, fib_create, fib_add, fib_delete, fib_batch },
	{ "rte_fib6", true, true, UINT32_MAX >> 1, fib6_create, fib6_add, fib6_delete, fib6_batch },
	{ "rte_lpm", false, false, (1 << 24) - 1, lpm_create, lpm_add, NULL, lpm_batch },
	{ "rte_lpm6", true, false, (1 << 21) - 1, lpm6_create, lpm6_add, NULL, lpm6_batch },
};

static double cpu_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static uint64_t heap_bytes(void)
{
	struct rte_malloc_socket_stats stats;
	rte_malloc_get_socket_stats(0, &stats);
	return stats.heap_allocsz_bytes;
}

static struct route *read_table(const char *path, bool v6, size_t *count)
{
	FILE *file = fopen(path, "r");
	size_t room = 1 << 20;
	struct route *routes = malloc(room * sizeof(*routes));
	char address[64];
	unsigned len, hop;

	*count = 0;
	while (file && fscanf(file, "%63[^/]/%u %u ", address, &len, &hop) == 3) {
		if (*count == room)
			routes = realloc(routes, (room *= 2) * sizeof(*routes));
		struct route *route = &routes[(*count)++];
		route->hop = hop;
		route->len = len;
		inet_pton(v6 ? AF_INET6 : AF_INET, address, route->ip);
		if (!v6) {
			uint32_t host = ntohl(word(route));
			memcpy(route->ip, &host, 4);
		}
	}
	if (file)
		fclose(file);
	return routes;
}

static int missing(const char *why)
{
	printf("{\"missing\": \"%s\"}\n", why);
	return 0;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used < 5)
		return 2;
	argv += used;
	const struct structure *it = NULL;
	for (size_t i = 0; i < sizeof(structures) / sizeof(*structures); i++)
		if (strcmp(structures[i].name, argv[1]) == 0)
			it = &structures[i];
	if (!it)
		return 2;
	size_t count, size = it->v6 ? 16 : 4;
	struct route *routes = read_table(argv[2], it->v6, &count);
	FILE *file = fopen(argv[3], "rb");
	if (!file || count == 0)
		return 2;
	fseek(file, 0, SEEK_END);
	size_t addresses_count = ftell(file) / size;
	rewind(file);
	uint8_t *addresses = malloc(addresses_count * size);
	if (fread(addresses, size, addresses_count, file) != addresses_count)
		return 2;
	double wanted = atof(argv[4]);

	uint64_t before = heap_bytes();
	double began = cpu_seconds();
	if (it->create(count + count / 8 + 1000))
		return missing("it could not be created");
	for (size_t i = 0; i < count; i++) {
		if (routes[i].hop > it->hop_max)
			return missing("a next hop has too many bits for it");
		if (it->add(&routes[i]))
			return missing("it refused a route");
		if (i % 1024 == 0 && cpu_seconds() - began > LOADING_MAX * wanted)
			return missing("loading takes more than 120 times as long as a pass may");
	}
	double loaded = cpu_seconds() - began;
	uint64_t bytes = heap_bytes() - before;

	/* The best of several passes, as in this program's own benchmarks. */
	double rate = 0;
	uint64_t sum;
	began = cpu_seconds();
	do {
		double start = cpu_seconds();
		sum = 0;
		for (size_t at = 0; at + BATCH <= addresses_count; at += BATCH)
			sum += it->batch(addresses + at * size);
		double took = cpu_seconds() - start;
		if (addresses_count / took > rate)
			rate = addresses_count / took;
	} while (cpu_seconds() - began < wanted);

	size_t updates = 0, at = 0;
	double took = 1;
	if (it->updates) {
		began = cpu_seconds();
		do {
			/* A stride coprime to most counts visits them in a scattered order. */
			at = (at + 524287) % count;
			it->delete(&routes[at]);
			it->add(&routes[at]);
			updates += 2;
		} while (cpu_seconds() - began < wanted);
		took = cpu_seconds() - began;
	}
	printf("{\"lookups\": %.0f, \"updates\": %.0f, \"bytes\": %lu, \"sum\": %lu, \"loaded\": %.3f}\n",
	       rate, updates / took, (unsigned long)bytes, (unsigned long)sum, loaded);
	return 0;
}
