/* initiator-rate: so many commands a second for each initiator; others are refused as busy. Initiators share 256 buckets.
 * Configuration: commands per second, burst */
#include "lastmeter.h"

LM_PLUGIN(LM_BLOCK, 0)

enum { BUCKETS = 256 };
static struct lm_bucket buckets[BUCKETS];
static u8 used[BUCKETS];
static const u64 RATE_MAX = 1000000000ull;
static u64 rate = 100, burst = 10;

static int configure(const char *text, const char *end) {
    return lm_read_rate(text, end, RATE_MAX, &rate, &burst);
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 which = request->block.initiator % BUCKETS;
    struct lm_bucket *bucket = &buckets[which];
    if (!used[which]) {
        used[which] = 1;
        bucket->then = request->arrival;
        bucket->tokens = burst * 1000000000ull;
    }
    request->verdict = lm_take(bucket, request->arrival, rate, burst, 1) ? LM_ALLOW : LM_DENY;
    request->code = 0x020407; /* not ready: operation in progress */
}

LM_EACH(decide)
