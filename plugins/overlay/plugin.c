/* overlay: copy on write. Writes go to an overlay beside the disk, and are read from there; the disk stays as it was.
 * A command of which only the first part lies on one side is shortened to it. What was written survives a reload.
 * Configuration: first block of the overlay, number of blocks of the disk (at most 262144) */
#include "lastmeter.h"

LM_PLUGIN(LM_BLOCK, 0)

enum { CHUNK = 512, CHUNKS = 64, BLOCKS_MAX = CHUNK * CHUNKS * 8 };
static u8 written[CHUNKS][CHUNK];
static u64 overlay, blocks;

static int configure(const char *text, const char *end) {
    u64 at = lm_number(&text, end, 0), length = lm_number(&text, end, 0);
    if (length == 0 || length > BLOCKS_MAX || at < length || at + length < at)
        return 1;
    overlay = at;
    blocks = length;
    for (u32 chunk = 0; chunk < CHUNKS; chunk++) {
        u8 key = (u8)chunk;
        lm_store_get(&key, 1, written[chunk], CHUNK);
    }
    return 0;
}

LM_CONFIG(configure)

static int is_written(u64 block) {
    return written[block / (CHUNK * 8)][block / 8 % CHUNK] >> block % 8 & 1;
}

/* False if it cannot be kept. */
static int set(u64 first, u32 count) {
    for (u64 block = first; block < first + count; block++)
        written[block / (CHUNK * 8)][block / 8 % CHUNK] |= (u8)(1 << block % 8);
    for (u64 chunk = first / (CHUNK * 8); chunk <= (first + count - 1) / (CHUNK * 8); chunk++) {
        u8 key = (u8)chunk;
        if (lm_store_put(&key, 1, written[chunk], CHUNK))
            return 0;
    }
    return 1;
}

static void decide(struct lm_request *request) {
    u64 lba = request->block.lba;
    u32 count = request->block.blocks, operation = request->operation;
    request->verdict = LM_ALLOW;
    if (operation == LM_FLUSH)
        return;
    request->verdict = LM_DENY;
    request->code = 0x052100; /* illegal request: LBA out of range */
    if (count == 0 || lba > blocks || count > blocks - lba)
        return;
    if (operation == LM_WRITE || operation == LM_ZERO) {
        request->code = 0x030c00; /* medium error: write error */
        if (!set(lba, count))
            return;
        request->verdict = LM_REMAP;
        request->block.lba = overlay + lba;
    } else if (operation == LM_READ) {
        int side = is_written(lba);
        u32 same = 1;
        while (same < count && is_written(lba + same) == side)
            same++;
        request->verdict = LM_REMAP;
        request->block.blocks = same;
        request->block.lba = side ? overlay + lba : lba;
    } else {
        request->code = 0x052000; /* illegal request: invalid command */
    }
}

LM_EACH(decide)
