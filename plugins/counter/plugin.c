/* counter: counts packets and bytes of each flow; the count goes into the flow's mark. Reports the totals. */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 0)

static u64 packets, bytes;

static void decide(struct lm_request *request) {
    packets++;
    bytes += request->length;
    request->mark++;
    request->verdict = LM_ALLOW;
}

LM_EACH(decide)

static char *print(char *at, u64 number) {
    char digits[20];
    int length = 0;
    do
        digits[length++] = (char)('0' + number % 10);
    while (number /= 10);
    while (length)
        *at++ = digits[--length];
    return at;
}

int LM_EXPORT(lm_report)(char *room, u32 length) {
    if (length < 64)
        return 0;
    char *at = print(room, packets);
    for (const char *text = " packets, "; *text; text++)
        *at++ = *text;
    at = print(at, bytes);
    for (const char *text = " bytes"; *text; text++)
        *at++ = *text;
    return (int)(at - room);
}
