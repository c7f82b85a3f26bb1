/* Plays golden vectors, and prints the SHA-256 of all outputs: the manifest has the same one under "c".

   write_rows.py writes the vectors to a file. The program runs where the C library has files: on Linux, and on
   a controller by semihosting, where the debugger, or an emulator, opens them. Outputs must be little-endian.
   With the word "spoil", each reading is played again with a number replaced by one that is not finite, out of
   its limits, or has random bits: whatever comes, the policy must answer with a code and change nothing. */
#include "policy.h"
#include "sha256.h"

#include <stdio.h>
#include <string.h>

#ifdef CORTEX_M
uint32_t clock_ticks(void); /* of cortex_m.c: of 24 bits */
#endif

static policy_readings readings, spoilt;
static policy_results results, kept;
static policy_state state, before;
static policy_work work;

static uint32_t random_bits(void)
{
    static uint32_t bits = 2463534242u;
    bits ^= bits << 13;
    bits ^= bits >> 17;
    bits ^= bits << 5;
    return bits;
}

/* Play a spoilt copy of the readings. Returns 1 if a refused one changes results or state. */
static int spoil(void)
{
    static const uint32_t numbers[] = {0x7FC00000u, 0xFF800000u, 0x7F800000u, 0x7F7FFFFFu, 0x80000001u};
    const size_t count = sizeof spoilt / sizeof(float);
    uint32_t kind = random_bits() % 6, number = kind < 5 ? numbers[kind] : random_bits();
    size_t place = random_bits() % 4 ? random_bits() % count : count - 1 - random_bits() % 16 % count;
    int code;
    spoilt = readings;
    memcpy((unsigned char *)&spoilt + place * sizeof number, &number, sizeof number);
    before = state;
    kept = results;
    code = policy_run(&state, &work, &spoilt, &results);
    if (code != POLICY_OK)
        return memcmp(&before, &state, sizeof state) != 0 || memcmp(&kept, &results, sizeof results) != 0;
    state = before;
    return 0;
}

int main(int count, char **words)
{
    FILE *rows;
    sha256 hash;
    char text[65];
    uint32_t begins;
    unsigned long played = 0, refused = 0;
#ifdef CORTEX_M
    uint32_t ticks = 0;
    uint64_t total = 0;
#endif
    int spoiling = count > 2 && strcmp(words[2], "spoil") == 0;
    if (policy_run(NULL, NULL, NULL, NULL) != POLICY_NULL || policy_reset(NULL) != POLICY_NULL
        || policy_check(NULL, NULL) != POLICY_NULL
        || policy_run(&state, &work, &readings, &results) != POLICY_NOT_RESET) {
        puts("null pointers are not refused");
        return 1;
    }
    rows = fopen(count > 1 ? words[1] : "rows.bin", "rb");
    if (rows == NULL) {
        puts("there is no file rows.bin");
        return 2;
    }
    sha256_begin(&hash);
    while (fread(&begins, sizeof begins, 1, rows) == 1 && fread(&readings, sizeof readings, 1, rows) == 1) {
        int code;
        if (begins)
            policy_reset(&state);
        for (int i = 0; spoiling && i < 10; i++)
            refused += (unsigned long)spoil();
#ifdef CORTEX_M
        ticks -= clock_ticks();
        code = policy_run(&state, &work, &readings, &results);
        ticks += clock_ticks();
        total += ticks & 0x00FFFFFFu;
        ticks = 0;
#else
        code = policy_run(&state, &work, &readings, &results);
#endif
        if (code != POLICY_OK) {
            printf("row %lu: code %d\n", played, code);
            return 1;
        }
        sha256_add(&hash, &results, sizeof results);
        played++;
    }
    fclose(rows);
    sha256_end(&hash, text);
    printf("%lu rows, outputs %s\n", played, text);
#ifdef CORTEX_M
    printf("%lu clock ticks a step\n", (unsigned long)(total / (played ? played : 1)));
#endif
    if (refused)
        printf("%lu refused readings changed results or state\n", refused);
    return refused != 0;
}
