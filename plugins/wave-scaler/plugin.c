/* wave-scaler: scales a Wave Video stream to what the scheduler grants it. Each frame keeps its first sub-bands by importance, as
 * many as fit; the lowest bands of all components always pass, or else nothing of the frame does.
 * Configuration: the UDP port, the number of the queue, the bytes that the stream may have in it, the period of the profile in ms */
#include "lastmeter.h"

enum { BANDS = 33, BASE = 3, HEADER = 16 };
enum { SCALED = 1, FULL = 2 };

LM_PLUGIN(LM_PACKET, 64)

static u64 port = 5005, queue, room = 24000, period = 50;

/* The stream: the frame that is passing, its bytes by band; what bands of earlier frames had, in sixteenths. */
static u32 known, frame, seen, passes, cut, band, allowed = BANDS;
static u32 bytes[BANDS], usual[BANDS];
static u64 began, interval = 83333333, profiled;
/* What the scheduler grants in bit/s, and granted at the last profile; what passed since it last told. */
static u64 granted, basis, told, passed;
static struct lm_queue state;

static int configure(const char *text, const char *end) {
    u64 new_port = lm_number(&text, end, port), new_queue = lm_number(&text, end, queue);
    u64 new_room = lm_number(&text, end, room), new_period = lm_number(&text, end, period);
    if (new_port == 0 || new_port > 65535 || new_queue > 65535 || new_room < 2048 || new_room > 1 << 30 ||
        new_period == 0 || new_period > 10000)
        return 1;
    port = new_port, queue = new_queue, room = new_room, period = new_period;
    return 0;
}

LM_CONFIG(configure)

/* What the stream has in the queue. */
static u64 waiting(void) { return state.length + passed; }

/* What the lowest bands of a frame need. */
static u64 base(void) {
    u64 sum = 0;
    for (u32 b = 0; b < BASE; b++)
        sum += usual[b];
    return sum ? sum / 16 : 600;
}

/* Reads the queue, and smooths the share over eight packets. */
static void look(u64 now) {
    if (now != told) {
        passed = 0;
        told = now;
    }
    u32 first = !known;
    known = lm_queue((u32)queue, &state) == 0;
    u64 grants = state.rate / 1000 * state.share / 1000;
    granted = first ? grants : (granted * 7 + grants) / 8;
}

/* How many bands fit, from `from` on, into what the queue can take in `time` ns. */
static u32 fit(u32 from, u64 time) {
    /* Thirty milliseconds of it may wait. */
    u64 waits = waiting(), may_wait = granted / 8 * 3 / 100;
    u64 budget = granted / 8 * (time / 1000) / 1000000 * 95 / 100;
    budget = waits > may_wait ? (budget > waits - may_wait ? budget - (waits - may_wait) : 0) : budget;
    u32 fits = from;
    for (u64 sum = 0; fits < BANDS; fits++) {
        u64 all = usual[fits] / 16;
        sum += all > bytes[fits] ? all - bytes[fits] : 0;
        if (sum > budget)
            break;
    }
    return fits < BASE ? BASE : fits;
}

static void begin(u32 number, u64 now) {
    if (seen && number == frame + 1 && now > began) {
        u64 gap = now - began;
        interval = (interval * 3 + (gap > 1000000000 ? 1000000000 : gap)) / 4;
    }
    for (u32 b = 0; b < BANDS && seen; b++) {
        /* A band of which nothing came was dropped before: nothing is learnt of it. */
        if (bytes[b])
            usual[b] = usual[b] ? usual[b] - usual[b] / 4 + bytes[b] * 4 : bytes[b] * 16;
        bytes[b] = 0;
    }
    frame = number, began = now, seen = 1, cut = 0, band = BANDS;
    /* It begins only if its lowest bands will find room, and those of others as large. */
    passes = waiting() + 2 * base() <= room;
    allowed = fit(0, interval);
    profiled = now, basis = granted;
}

/* Lowers what is allowed in the middle of a frame. */
static void profile(u32 from, u64 now) {
    profiled = now, basis = granted;
    u64 end = began + interval;
    u32 fits = fit(from, end > now ? end - now : 0);
    if (fits < allowed)
        allowed = fits;
}

static void decide(struct lm_request *request) {
    u8 *data = request->data;
    u32 header = lm_ipv4(request, 8 + HEADER);
    request->verdict = LM_ALLOW;
    if (!header || data[9] != 17 || !lm_first(request) || lm_u16(data + header + 2) != port)
        return;
    look(lm_now());
    if (!known)
        return;
    u32 tag = lm_u32(data + header + 8), number = lm_u32(data + header + 12);
    u32 priority = tag >> 4 & 0x3f;
    if (priority >= BANDS)
        return;
    u64 now = request->arrival;
    if (!seen || number != frame)
        begin(number, now);
    else if (now >= profiled + period * 1000000 || granted < basis - basis / 8)
        profile(priority, now);
    bytes[priority] += request->length;
    if (passes && priority != band && priority >= allowed && priority >= BASE)
        cut = 1;
    band = priority;
    if (priority >= BASE) {
        /* What must pass of this frame and the next finds room whatever the queue does meanwhile. */
        u32 full = waiting() + request->length + 3 * base() > room;
        cut |= full;
        if (!passes || cut) {
            request->verdict = LM_DENY;
            request->code = full ? FULL : SCALED;
            return;
        }
    } else if (!passes) {
        request->verdict = LM_DENY;
        request->code = FULL;
        return;
    }
    passed += request->length;
}

LM_EACH(decide)
