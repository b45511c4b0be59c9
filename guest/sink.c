// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A program in a guest that receives datagrams, does some work for each, and counts; and a second program that counts
 * what it gets done with what is left of the processor.
 *
 *   sink NAME WORK PEER PORT POLLS
 *
 * WORK is microseconds for each datagram; POLLS is for how many microseconds a call polls the interface before it
 * waits, in place of the interface's interrupts (SO_PREFER_BUSY_POLL), or 0.
 *
 * Says hello to PEER:PORT until something comes. Then, by the kind of a datagram (all numbers little-endian, 64 bits):
 *
 *   1 load   step, from, until, sent (the guest's clock, ns): counted if it was processed between `from` and `until`
 *   2 ping   is sent back with the guest's clock in the places of `from` and `until`
 *   3 end    what was counted is written, a line for each step; bye is sent
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>

#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif

enum { LOAD = 1, PING, END, HELLO, BYE };
enum { STEPS = 64, BUCKETS = 256, BINS = 60000, BUFFERS = 128 };
/* Each bin of the second program's progress. */
static const uint64_t BIN = 10000000;
static const uint64_t MAGIC = 0x6c6173746d657465;

struct datagram {
	uint64_t magic, kind, step, from, until, sent;
};

struct step {
	uint64_t from, until, processed;
	/* From sent to processed, and from one processed to the next. */
	uint64_t waits[BUCKETS], gaps[BUCKETS];
};

static struct step steps[STEPS];

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Xorshift, as in Marsaglia, Journal of Statistical Software 8(14), 2003, page 4. */
static volatile uint64_t result;
static void work(uint64_t rounds)
{
	uint64_t state = 88172645463325252u;
	while (rounds--) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
	}
	result = state;
}

/* Rounds that take this time, by the best of several trials. */
static uint64_t rounds_for(uint64_t time)
{
	enum { ROUNDS = 20000 };
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 100; i++) {
		uint64_t from = now(), took;
		work(ROUNDS);
		took = now() - from;
		best = took < best ? took : best;
	}
	return time * ROUNDS / (best ? best : 1);
}

/* Eight buckets for each doubling, from 1 us. */
static int bucket_of(uint64_t wait)
{
	uint64_t scaled = wait / 125 + 8;
	int top = 63 - __builtin_clzll(scaled);
	int bucket = (top - 3) * 8 + (int)((scaled >> (top - 3)) & 7);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The middle of a bucket. */
static uint64_t wait_of(int bucket)
{
	uint64_t low = (uint64_t)(8 + bucket % 8) << (bucket / 8);
	uint64_t width = (uint64_t)1 << (bucket / 8);
	return (2 * low + width - 16) * 125 / 2;
}

static uint64_t percentile(const struct step *step, const uint64_t *counts, double share)
{
	uint64_t wanted = (uint64_t)((double)step->processed * share), seen = 0;
	for (int i = 0; i < BUCKETS; i++) {
		seen += counts[i];
		if (seen > wanted)
			return wait_of(i);
	}
	return 0;
}

static pid_t compete(uint64_t *bins, uint64_t start, uint64_t rounds)
{
	pid_t child = fork();
	if (child)
		return child;
	setpriority(PRIO_PROCESS, 0, 19);
	for (;;) {
		uint64_t bin;
		work(rounds);
		bin = (now() - start) / BIN;
		if (bin < BINS)
			bins[bin]++;
	}
}

/* The socket's calls poll the interface; 0 if the kernel agrees. */
static int poll_in_calls(int at, int microseconds)
{
	int yes = 1, packets = 64;

	if (!microseconds)
		return 0;
	return setsockopt(at, SOL_SOCKET, SO_PREFER_BUSY_POLL, &yes, sizeof(yes)) ||
	       setsockopt(at, SOL_SOCKET, SO_BUSY_POLL, &microseconds, sizeof(microseconds)) ||
	       setsockopt(at, SOL_SOCKET, SO_BUSY_POLL_BUDGET, &packets, sizeof(packets));
}

int main(int count, char **words)
{
	if (count != 6)
		return 2;
	const char *name = words[1];
	uint64_t rounds = rounds_for(strtoull(words[2], NULL, 10) * 1000), unit = rounds_for(50000);
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[4])) };
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = peer.sin_port };
	int at = socket(AF_INET, SOCK_DGRAM, 0);
	/* A datagram counts with its page and what describes it. */
	int room = BUFFERS * (4096 + 512) / 2;
	uint64_t start = now();
	uint64_t *bins = mmap(NULL, BINS * sizeof(*bins), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at < 0 || bins == MAP_FAILED || inet_aton(words[3], &peer.sin_addr) == 0 ||
	    setsockopt(at, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) || poll_in_calls(at, atoi(words[5])) ||
	    bind(at, (struct sockaddr *)&own, sizeof(own)) || connect(at, (struct sockaddr *)&peer, sizeof(peer))) {
		perror("sink");
		return 1;
	}
	uint64_t last = start;
	pid_t child = compete(bins, start, unit);
	struct datagram datagram = { .magic = MAGIC, .kind = HELLO };
	struct pollfd ready = { .fd = at, .events = POLLIN };
	do
		send(at, &datagram, sizeof(datagram), 0);
	while (poll(&ready, 1, 100) == 0);

	for (;;) {
		if (recv(at, &datagram, sizeof(datagram), 0) < (ssize_t)sizeof(datagram) || datagram.magic != MAGIC)
			continue;
		if (datagram.kind == PING) {
			datagram.from = now();
			datagram.until = now();
			send(at, &datagram, sizeof(datagram), 0);
		} else if (datagram.kind == LOAD && datagram.step < STEPS) {
			struct step *step = &steps[datagram.step];
			work(rounds);
			uint64_t time = now();
			step->from = datagram.from;
			step->until = datagram.until;
			if (time >= step->from && time < step->until) {
				step->processed++;
				step->waits[bucket_of(time > datagram.sent ? time - datagram.sent : 0)]++;
				step->gaps[bucket_of(time - last)]++;
			}
			last = time;
		} else if (datagram.kind == END) {
			break;
		}
	}
	kill(child, SIGKILL);
	for (int i = 0; i < STEPS; i++) {
		const struct step *step = &steps[i];
		uint64_t burned = 0, whole = 0;
		if (!step->until)
			continue;
		for (uint64_t bin = (step->from - start) / BIN + 1; (bin + 1) * BIN + start <= step->until && bin < BINS; bin++) {
			burned += bins[bin];
			whole++;
		}
		/*
		 * Datagrams, the second program's work in each 10 ms; of waits half and 99 of 100, and half of the
		 * gaps, in ns.
		 */
		printf("step %s %d %llu %.3f %llu %llu %llu\n", name, i, (unsigned long long)step->processed,
		       whole ? (double)burned / (double)whole : 0,
		       (unsigned long long)percentile(step, step->waits, 0.5),
		       (unsigned long long)percentile(step, step->waits, 0.99),
		       (unsigned long long)percentile(step, step->gaps, 0.5));
	}
	fflush(stdout);
	datagram.kind = BYE;
	for (int i = 0; i < 3; i++)
		send(at, &datagram, sizeof(datagram), 0);
	return 0;
}
