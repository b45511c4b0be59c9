/* policer: a token bucket for each flow; what exceeds it is dropped with reason 1. Flows share 1024 buckets.
 * Configuration: bytes per second, burst in bytes */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 0)

enum { BUCKETS = 1024 };
static struct lm_bucket buckets[BUCKETS];
static u8 used[BUCKETS];
static const u64 RATE_MAX = 1000000000000ull;
static u64 rate = 1000000, burst = 10000;

static int configure(const char *text, const char *end) {
    return lm_read_rate(text, end, RATE_MAX, &rate, &burst);
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 which = (u32)(request->flow % BUCKETS);
    struct lm_bucket *bucket = &buckets[which];
    if (!used[which]) {
        used[which] = 1;
        bucket->then = request->arrival;
        bucket->tokens = burst * 1000000000ull;
    }
    int fits = request->length <= burst && lm_take(bucket, request->arrival, rate, burst, request->length);
    request->verdict = fits ? LM_ALLOW : LM_DENY;
    request->code = 1;
}

LM_EACH(decide)
