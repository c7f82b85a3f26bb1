/* SHA-256 (FIPS 180-4), to compare what a policy computes with its manifest. */
#ifndef CONTROLLER_SHA256_H
#define CONTROLLER_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t words[8];
    uint64_t length; /* bytes so far */
    uint8_t block[64];
} sha256;

void sha256_begin(sha256 *hash);
void sha256_add(sha256 *hash, const void *bytes, size_t size);

/* Write the 64 digits of the hash and a zero to `text`. */
void sha256_end(sha256 *hash, char text[65]);

#endif
