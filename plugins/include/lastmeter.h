/* lastmeter.h: the interface of plugins, lastmeter:request/1, for C (docs/plugin-interface.md).
 *
 *   #include "lastmeter.h"
 *   LM_PLUGIN(LM_PACKET, 64)            the kinds it handles, the bytes of data it wants
 *   static void decide(struct lm_request *request) { request->verdict = LM_ALLOW; }
 *   LM_EACH(decide)                     called for each request of a batch
 */
#ifndef LASTMETER_H
#define LASTMETER_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum { LM_PACKET = 1, LM_BLOCK = 2, LM_FRAMEBUFFER = 4, LM_FRAME = 8 };

enum {
    LM_ALLOW = 1, LM_DENY, LM_CHANGED, LM_TO_INTERFACE, LM_TO_FLOW, LM_CLONE, LM_REMAP, LM_READ_ONLY,
    LM_CLIP, LM_MOVE, LM_CROP, LM_SCALE, LM_QUALITY
};

enum { LM_READ = 1, LM_WRITE, LM_FLUSH, LM_TRIM, LM_ZERO, LM_COMPARE_AND_WRITE, LM_RESERVE };
enum { LM_UPDATE = 1, LM_DRAW, LM_COPY, LM_FILL, LM_KEY_DOWN, LM_KEY_UP, LM_POINTER, LM_CUT };

struct lm_request {
    u8 kind, verdict;
    u16 operation;
    u32 code, length;
    u8 *data;
    u32 captured, room;
    u64 flow, arrival, mark;
    union {
        struct { u16 interface; } packet;
        struct { u64 lba; u32 blocks, initiator; } block;
        struct { u16 x, y, width, height, from_x, from_y; u32 value; } framebuffer;
        struct { u16 x, y, width, height, whole_width, whole_height; u32 number; } frame;
    };
};

struct lm_batch {
    u32 count, kind;
    u64 now;
    struct lm_request requests[];
};

struct lm_description {
    char magic[4];
    u16 version, kinds;
    u8 *room;
    u32 length, wanted, reserved[3];
};

_Static_assert(sizeof(struct lm_request) == 64, "a descriptor has 64 bytes");
_Static_assert(sizeof(struct lm_description) == 32, "a description has 32 bytes");

/* A batch of 64 requests, or as many as fit into a megabyte. */
#define LM_SLOT(wanted) (((wanted) + 7) / 8 * 8)
#define LM_FIT(wanted) (1048576 / (64 + LM_SLOT(wanted)))
#define LM_BATCH(wanted) (LM_FIT(wanted) < 1 ? 1 : LM_FIT(wanted) > 64 ? 64 : LM_FIT(wanted))
#define LM_PLUGIN(kinds, wanted)                                                                          \
    static u8 lm_room[16 + LM_BATCH(wanted) * (64 + LM_SLOT(wanted))] __attribute__((aligned(8)));        \
    const struct lm_description lm_plugin = {                                                             \
        {'L', 'M', 'R', 'Q'}, 1, (kinds), lm_room, sizeof lm_room, (wanted), {0, 0, 0}};

#define LM_EXPORT(name) __attribute__((export_name(#name))) name
#define LM_EACH(decide)                                                                                   \
    int LM_EXPORT(lm_process)(struct lm_batch *batch) {                                                   \
        for (u32 i = 0; i < batch->count; i++)                                                            \
            decide(&batch->requests[i]);                                                                  \
        return 0;                                                                                         \
    }

/* `configure(text, end)` reads the configuration, at first and whenever it changes; 0 accepts it. */
#define LM_CONFIG(configure)                                                                              \
    int LM_EXPORT(lm_init)(const char *text, u32 length) { return configure(text, text + length); }       \
    int LM_EXPORT(lm_configure)(const char *text, u32 length) { return configure(text, text + length); }

#define LM_IMPORT(name) __attribute__((import_module("lastmeter:request/1"), import_name(#name)))
LM_IMPORT(lm_now) u64 lm_now(void);
LM_IMPORT(lm_random) u64 lm_random(void);
LM_IMPORT(lm_log) void lm_log(const char *text, u32 length);
struct lm_queue { u64 length, share, rate; };
LM_IMPORT(lm_queue) int lm_queue(u32 queue, struct lm_queue *state);
LM_IMPORT(lm_store_get) int lm_store_get(const void *key, u32 key_length, void *value, u32 length);
LM_IMPORT(lm_store_put) int lm_store_put(const void *key, u32 key_length, const void *value, u32 length);

/* Numbers in network order. */
static inline u32 lm_u16(const u8 *at) { return (u32)at[0] << 8 | at[1]; }
static inline u32 lm_u32(const u8 *at) { return lm_u16(at) << 16 | lm_u16(at + 2); }
static inline void lm_put16(u8 *at, u32 value) { at[0] = (u8)(value >> 8); at[1] = (u8)value; }
static inline void lm_put32(u8 *at, u32 value) { lm_put16(at, value >> 16); lm_put16(at + 2, value); }

/* Updates a checksum in which the 16 bits `from` become `to` (RFC 1624, equation 3). */
static inline void lm_checksum(u8 *at, u32 from, u32 to) {
    u32 sum = (~lm_u16(at) & 0xffff) + (~from & 0xffff) + to;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    lm_put16(at, ~sum & 0xffff);
}

/* The next whole number of a text such as "100 25 3", or `otherwise` where there is none. */
static inline u64 lm_number(const char **text, const char *end, u64 otherwise) {
    while (*text < end && (**text < '0' || **text > '9'))
        ++*text;
    if (*text == end)
        return otherwise;
    u64 number = 0;
    while (*text < end && **text >= '0' && **text <= '9' && number < 1000000000000000000ull)
        number = number * 10 + (u64)(*(*text)++ - '0');
    return number;
}

/* A rectangle of pixels, from a configuration "x y width height"; 1 if it is empty or too large, and then nothing changes. */
struct lm_rectangle { u32 x, y, width, height; };
static inline int lm_read_rectangle(const char *text, const char *end, struct lm_rectangle *read) {
    u64 side[4];
    for (int i = 0; i < 4; i++)
        side[i] = lm_number(&text, end, 0);
    if (side[2] == 0 || side[3] == 0 || side[0] + side[2] > 65535 || side[1] + side[3] > 65535)
        return 1;
    *read = (struct lm_rectangle){(u32)side[0], (u32)side[1], (u32)side[2], (u32)side[3]};
    return 0;
}
static inline u32 lm_least(u32 a, u32 b) { return a < b ? a : b; }
static inline u32 lm_most(u32 a, u32 b) { return a > b ? a : b; }

/* A token bucket: `rate` tokens a second, at most `burst`. Times are in ns. */
struct lm_bucket { u64 tokens, then; };
static inline int lm_take(struct lm_bucket *bucket, u64 now, u64 rate, u64 burst, u64 cost) {
    /* Billionths of a token. A bucket that had time to fill is full, so that no product overflows. */
    u64 passed = now > bucket->then ? now - bucket->then : 0;
    u64 most = burst * 1000000000ull;
    u64 full = rate ? most / rate : 0;
    bucket->tokens = passed > full && rate ? most : bucket->tokens + passed * rate;
    bucket->tokens = bucket->tokens > most ? most : bucket->tokens;
    bucket->then = now > bucket->then ? now : bucket->then;
    if (bucket->tokens < cost * 1000000000ull)
        return 0;
    bucket->tokens -= cost * 1000000000ull;
    return 1;
}

/* A rate and a burst, from a configuration "rate burst"; 1 if one is 0 or too large, and then nothing changes. */
enum { LM_BURST_MAX = 1000000000 };
static inline int lm_read_rate(const char *text, const char *end, u64 most, u64 *rate, u64 *burst) {
    u64 new_rate = lm_number(&text, end, *rate), new_burst = lm_number(&text, end, *burst);
    if (new_rate == 0 || new_rate > most || new_burst == 0 || new_burst > LM_BURST_MAX)
        return 1;
    *rate = new_rate, *burst = new_burst;
    return 0;
}

/* At most so many requests a second: in step while they come, anew after a pause. Times are in ns. */
struct lm_pace { u64 interval, next; };
/* From a configuration "number a second"; 1 if it is 0 or more than `most`, and then nothing changes. */
static inline int lm_read_pace(const char *text, const char *end, u64 most, struct lm_pace *pace) {
    u64 rate = lm_number(&text, end, 10);
    if (rate == 0 || rate > most)
        return 1;
    pace->interval = 1000000000 / rate;
    return 0;
}
static inline int lm_due(struct lm_pace *pace, u64 now) {
    if (now < pace->next)
        return 0;
    pace->next = now - pace->next < pace->interval ? pace->next + pace->interval : now + pace->interval;
    return 1;
}

/* Length of the IPv4 header of a packet of which enough is there to see `more` bytes after it; else 0. */
static inline u32 lm_ipv4(const struct lm_request *request, u32 more) {
    const u8 *data = request->data;
    if (request->captured < 20 || data[0] >> 4 != 4)
        return 0;
    u32 length = (data[0] & 15u) * 4;
    return length >= 20 && request->captured >= length + more ? length : 0;
}

/* Whether a packet carries the header of its protocol: it is no later fragment. */
static inline int lm_first(const struct lm_request *request) {
    return (lm_u16(request->data + 6) & 0x1fff) == 0;
}

#endif
