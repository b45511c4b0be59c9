/* rtp-sequence: closes gaps in the sequence numbers of RTP (RFC 3550, 5.1) after packets were dropped on purpose, so that receivers report no loss.
 * Configuration: the UDP port */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 64)

static u32 port = 5004;

static int configure(const char *text, const char *end) {
    u64 number = lm_number(&text, end, port);
    if (number == 0 || number > 65535)
        return 1;
    port = (u32)number;
    return 0;
}

LM_CONFIG(configure)

/* The flow's mark: 1, the last number that arrived, the last one that left. */
static void decide(struct lm_request *request) {
    u8 *data = request->data;
    u32 header = lm_ipv4(request, 8 + 12);
    request->verdict = LM_ALLOW;
    if (!header || data[9] != 17 || !lm_first(request) || lm_u16(data + header + 2) != port ||
        data[header + 8] >> 6 != 2)
        return;
    u8 *place = data + header + 8 + 2, *sum = data + header + 6;
    u32 arrived = lm_u16(place), leaves = arrived;
    if (request->mark >> 32) {
        u32 last = (u32)(request->mark >> 16) & 0xffff, left = (u32)request->mark & 0xffff;
        u32 step = (arrived - last) & 0xffff;
        if (step == 0 || step >= 0x8000)
            leaves = (left + step) & 0xffff; /* late: as far behind as it was */
        else
            leaves = (left + 1) & 0xffff;
        if (step == 0 || step >= 0x8000)
            arrived = last, last = left;
        else
            last = leaves;
        request->mark = 1ull << 32 | (u64)arrived << 16 | last;
    } else {
        request->mark = 1ull << 32 | (u64)arrived << 16 | leaves;
    }
    u32 before = lm_u16(place);
    if (leaves == before)
        return;
    lm_put16(place, leaves);
    if (lm_u16(sum)) {
        lm_checksum(sum, before, leaves);
        if (lm_u16(sum) == 0)
            lm_put16(sum, 0xffff);
    }
    request->verdict = LM_CHANGED;
}

LM_EACH(decide)
