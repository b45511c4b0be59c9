/* syn-limiter: lets so many new TCP connections through; other SYNs are dropped with reason 1.
 * Configuration: SYNs per second, burst */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 64)

static struct lm_bucket bucket;
static int begun;
static u64 rate = 100, burst = 100;

static int configure(const char *text, const char *end) {
    u64 new_rate = lm_number(&text, end, rate), new_burst = lm_number(&text, end, burst);
    if (new_rate == 0 || new_rate > 1000000000 || new_burst == 0 || new_burst > 1000000000)
        return 1;
    rate = new_rate;
    burst = new_burst;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 header = lm_ipv4(request, 14);
    request->verdict = LM_ALLOW;
    if (!header || request->data[9] != 6 || !lm_first(request))
        return;
    /* SYN without ACK. */
    if ((request->data[header + 13] & 0x12) != 2)
        return;
    if (!begun) {
        begun = 1;
        bucket.then = request->arrival;
        bucket.tokens = burst * 1000000000ull;
    }
    if (!lm_take(&bucket, request->arrival, rate, burst, 1)) {
        request->verdict = LM_DENY;
        request->code = 1;
    }
}

LM_EACH(decide)
