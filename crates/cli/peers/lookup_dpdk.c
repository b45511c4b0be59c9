/* Longest-prefix match by DPDK's rte_fib (DIR-24-8, next hops of 4 bytes), for `lastmeter bench lookup`.
 *
 * lookup_dpdk EAL-OPTIONS -- TABLE ADDRESSES SECONDS
 *
 * TABLE: lines of `A.B.C.D/LEN HOP`. ADDRESSES: 32-bit words in the machine's order. Prints one line of
 * JSON: lookups and processor seconds, 64 at a time; updates (a delete or an add each) and seconds; bytes
 * of DPDK's heap; the sum of all next hops of one pass, which must be the same as anybody's. */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_fib.h>
#include <rte_malloc.h>
#include <rte_rib.h>

#define BATCH 64

struct route {
	uint32_t address, hop;
	uint8_t len;
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

static struct route *read_table(const char *path, size_t *count)
{
	FILE *file = fopen(path, "r");
	size_t room = 1 << 20;
	struct route *routes = malloc(room * sizeof(*routes));
	unsigned a, b, c, d, len, hop;

	*count = 0;
	while (file && fscanf(file, "%u.%u.%u.%u/%u %u", &a, &b, &c, &d, &len, &hop) == 6) {
		if (*count == room)
			routes = realloc(routes, (room *= 2) * sizeof(*routes));
		routes[(*count)++] = (struct route){ a << 24 | b << 16 | c << 8 | d, hop, len };
	}
	if (file)
		fclose(file);
	return routes;
}

static uint64_t pass(struct rte_fib *fib, uint32_t *addresses, size_t count)
{
	uint64_t hops[BATCH], sum = 0;

	for (size_t at = 0; at + BATCH <= count; at += BATCH) {
		rte_fib_lookup_bulk(fib, addresses + at, hops, BATCH);
		for (int i = 0; i < BATCH; i++)
			sum += hops[i];
	}
	return sum;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used < 4)
		return 2;
	argv += used;
	size_t count, addresses_count;
	struct route *routes = read_table(argv[1], &count);
	FILE *file = fopen(argv[2], "rb");
	if (!file || count == 0)
		return 2;
	fseek(file, 0, SEEK_END);
	addresses_count = ftell(file) / 4;
	rewind(file);
	uint32_t *addresses = malloc(addresses_count * 4);
	if (fread(addresses, 4, addresses_count, file) != addresses_count)
		return 2;
	double wanted = atof(argv[3]);

	uint64_t before = heap_bytes();
	struct rte_fib_conf conf = {
		.type = RTE_FIB_DIR24_8,
		.max_routes = count + count / 8 + 1000,
		.dir24_8 = { .nh_sz = RTE_FIB_DIR24_8_4B, .num_tbl8 = 8192 },
	};
	struct rte_fib *fib = rte_fib_create("table", 0, &conf);
	if (!fib)
		return 3;
	for (size_t i = 0; i < count; i++)
		if (rte_fib_add(fib, routes[i].address, routes[i].len, routes[i].hop))
			return 3;
	uint64_t bytes = heap_bytes() - before;
	/* The best that this processor has; scalar where there is no AVX-512. */
	if (rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512))
		rte_fib_select_lookup(fib, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);

	/* The best of several passes, as this program's own benchmarks count. */
	double rate = 0, began = cpu_seconds();
	uint64_t sum = 0;
	do {
		double start = cpu_seconds();
		sum = pass(fib, addresses, addresses_count);
		double took = cpu_seconds() - start;
		if (addresses_count / took > rate)
			rate = addresses_count / took;
	} while (cpu_seconds() - began < wanted);

	size_t updates = 0, at = 0;
	began = cpu_seconds();
	do {
		/* A stride that shares no factor with most counts visits them in no order. */
		at = (at + 524287) % count;
		rte_fib_delete(fib, routes[at].address, routes[at].len);
		rte_fib_add(fib, routes[at].address, routes[at].len, routes[at].hop);
		updates += 2;
	} while (cpu_seconds() - began < wanted);
	double took = cpu_seconds() - began;
	printf("{\"lookups\": %.0f, \"updates\": %.0f, \"bytes\": %lu, \"sum\": %lu}\n", rate,
	       updates / took, (unsigned long)bytes, (unsigned long)sum);
	return 0;
}
