/* hours: sends frames at certain hours of the day only.
 * Configuration: first hour, hour after the last one, second of the day when the device's clock was 0 */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 0)

enum { DAY = 86400 };
static u64 from, to = 24, offset;

static int configure(const char *text, const char *end) {
    u64 first = lm_number(&text, end, 0), last = lm_number(&text, end, 24), begin = lm_number(&text, end, 0);
    if (first > 24 || last > 24 || begin >= DAY)
        return 1;
    from = first, to = last, offset = begin;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u64 hour = (offset + request->arrival / 1000000000) % DAY / 3600;
    /* From 22 to 6 goes over midnight. */
    int is_open = from <= to ? hour >= from && hour < to : hour >= from || hour < to;
    request->verdict = is_open ? LM_ALLOW : LM_DENY;
    request->code = 1;
}

LM_EACH(decide)
