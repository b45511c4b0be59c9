/* source-nat: replaces the prefix of sources, and that of destinations on the way back, address by address (RFC 3022, 2.1).
 * Configuration: prefix, length, other prefix: 10.1.0.0/16 198.18.0.0 */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 64)

static u32 inside, outside, mask;

static u32 address(const char **text, const char *end) {
    u32 sum = 0;
    for (int i = 0; i < 4; i++)
        sum = sum << 8 | (lm_number(text, end, 0) & 255);
    return sum;
}

static int configure(const char *text, const char *end) {
    u32 from = address(&text, end);
    u64 length = lm_number(&text, end, 0);
    u32 to = address(&text, end);
    if (length == 0 || length > 32)
        return 1;
    mask = ~0u << (32 - length);
    inside = from & mask;
    outside = to & mask;
    return 0;
}

LM_CONFIG(configure)

/* Replaces the prefix of the address at `at`, and mends the checksums that cover it. */
static void replace(struct lm_request *request, u32 header, u32 at, u32 prefix) {
    u8 *data = request->data;
    u32 before = lm_u32(data + at), after = prefix | (before & ~mask);
    u8 *sums[2] = {data + 10, 0};
    u32 place = data[9] == 6 ? header + 16 : header + 6;
    int has_sum = (data[9] == 6 || data[9] == 17) && lm_first(request) && request->captured >= place + 2;
    /* Zero is "no checksum" in UDP. */
    if (has_sum && !(data[9] == 17 && lm_u16(data + place) == 0))
        sums[1] = data + place;
    for (int i = 0; i < 2; i++)
        if (sums[i]) {
            lm_checksum(sums[i], before >> 16, after >> 16);
            lm_checksum(sums[i], before & 0xffff, after & 0xffff);
        }
    if (sums[1] && data[9] == 17 && lm_u16(sums[1]) == 0)
        lm_put16(sums[1], 0xffff);
    lm_put32(data + at, after);
    request->verdict = LM_CHANGED;
}

static void decide(struct lm_request *request) {
    u32 header = lm_ipv4(request, 0);
    request->verdict = LM_ALLOW;
    if (!header || !mask)
        return;
    if ((lm_u32(request->data + 12) & mask) == inside)
        replace(request, header, 12, outside);
    else if ((lm_u32(request->data + 16) & mask) == outside)
        replace(request, header, 16, inside);
}

LM_EACH(decide)
