#include "sha256.h"

static const uint32_t ROUND[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
};

static uint32_t turned(uint32_t x, unsigned by)
{
    return x >> by | x << (32 - by);
}

static void add_block(sha256 *hash)
{
    uint32_t w[64], s[8];
    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)hash->block[4 * i] << 24 | (uint32_t)hash->block[4 * i + 1] << 16
               | (uint32_t)hash->block[4 * i + 2] << 8 | hash->block[4 * i + 3];
    for (size_t i = 16; i < 64; i++) {
        uint32_t a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    for (size_t i = 0; i < 8; i++)
        s[i] = hash->words[i];
    for (size_t i = 0; i < 64; i++) {
        uint32_t e = turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25);
        uint32_t a = turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22);
        uint32_t one = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + ROUND[i] + w[i];
        uint32_t two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        for (size_t j = 7; j > 0; j--)
            s[j] = s[j - 1];
        s[4] += one;
        s[0] = one + two;
    }
    for (size_t i = 0; i < 8; i++)
        hash->words[i] += s[i];
}

void sha256_begin(sha256 *hash)
{
    static const uint32_t first[8] = {
        0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u,
    };
    for (size_t i = 0; i < 8; i++)
        hash->words[i] = first[i];
    hash->length = 0;
}

void sha256_add(sha256 *hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        hash->block[hash->length++ % 64] = ((const uint8_t *)bytes)[i];
        if (hash->length % 64 == 0)
            add_block(hash);
    }
}

void sha256_end(sha256 *hash, char text[65])
{
    static const uint8_t one = 0x80, zero = 0;
    uint64_t bits = 8 * hash->length;
    sha256_add(hash, &one, 1);
    while (hash->length % 64 != 56)
        sha256_add(hash, &zero, 1);
    for (unsigned shift = 64; shift > 0; shift -= 8) {
        uint8_t byte = (uint8_t)(bits >> (shift - 8));
        sha256_add(hash, &byte, 1);
    }
    for (size_t i = 0; i < 64; i++)
        text[i] = "0123456789abcdef"[hash->words[i / 8] >> (28 - 4 * (i % 8)) & 15u];
    text[64] = 0;
}
