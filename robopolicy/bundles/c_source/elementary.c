// bits:
static inline float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// larger:
/* The larger of two numbers; NaN if one of them is NaN. */
static inline float larger(float a, float b)
{
    return ((a > b) | (a != a)) ? a : b;
}

// smaller:
/* The smaller of two numbers; NaN if one of them is NaN. */
static inline float smaller(float a, float b)
{
    return ((a < b) | (a != a)) ? a : b;
}

// to_integer:
/* Rounded towards zero, saturated; 0 if x is NaN. */
static inline int32_t to_integer(float x)
{
    x = x < -2147483648.0f ? -2147483648.0f : x;
    x = x > 2147483520.0f ? 2147483520.0f : x;
    return x == x ? (int32_t)x : 0;
}

// downward:
/* The largest whole number that is not above x. */
static inline float downward(float x)
{
    float small = ((x > -8388608.0f) & (x < 8388608.0f)) ? x : 0.0f;
    float whole = (float)(int32_t)small;
    whole = whole > small ? whole - 1.0f : whole;
    return small == x ? whole : x;
}

// nearest:
/* The nearest whole number; of two, the even one. */
static inline float nearest(float x)
{
    float size = x < 0.0f ? -x : x;
    float whole = (size + 8388608.0f) - 8388608.0f;
    whole = x < 0.0f ? -whole : whole;
    return size < 8388608.0f ? whole : x;
}

// modulo:
/* The rest of a division, with the sign of b; 0 for b = 0. */
static inline int32_t modulo(int32_t a, int32_t b)
{
    int32_t rest;
    if (b == 0 || b == -1)
        return 0;
    rest = a % b;
    return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;
}

// rest_of: bits
/* x - n y, where n is x / y rounded towards zero: exact, with the sign of x. */
static inline float rest_of(float x, float y)
{
    float size = x < 0.0f ? -x : x, rest, part = y < 0.0f ? -y : y;
    if (!(size - size == 0.0f) || !(part > 0.0f))
        return 0.0f / 0.0f;
    if (part - part != 0.0f)
        return x;
    rest = size;
    while (rest >= part) {
        /* The largest y times a power of two that is not above what is left: the difference is exact. */
        float most = part;
        if (rest / 2.0f >= part) {
            uint32_t up = ((bits_of(rest) >> 23) - (bits_of(part) >> 23)) << 23;
            most = part >= 1.17549435e-38f ? from_bits(bits_of(part) + up) : part;
            most = most > rest ? most / 2.0f : most;
            while (part < 1.17549435e-38f && most <= rest / 2.0f)
                most = most + most;
        }
        rest = rest - most;
    }
    return x < 0.0f ? -rest : rest;
}

// exp_of: bits
/* e^x, within 1 unit in the last place (2 below 1.2e-38): a polynomial on +-ln(2)/2, times a power of two. */
static inline float exp_of(float x)
{
    float near = x < -104.0f ? -104.0f : x;
    float shifted, n, r, p;
    uint32_t k, half;
    near = near > 89.0f ? 89.0f : near;
    shifted = near * 1.44269504f + 12582912.0f;
    n = shifted - 12582912.0f;
    k = bits_of(shifted) - 0x4B400000u + 300u;
    half = k >> 1;
    r = near - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* Two factors: the power of two itself may be too small for a float, or too large. */
    return p * from_bits((half - 23u) << 23) * from_bits((k - half - 23u) << 23);
}

// log_of: bits
/* The natural logarithm, within 1 unit in the last place; minus infinity for 0, NaN below it. */
static inline float log_of(float x)
{
    int small = x < 1.17549435e-38f;
    uint32_t bits = bits_of(small ? x * 8388608.0f : x) + (0x3F800000u - 0x3F3504F3u);
    float k = (float)(int32_t)(bits >> 23) - (small ? 150.0f : 127.0f);
    float f = from_bits((bits & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    float s = f / (2.0f + f), z = s * s, w = z * z;
    float high = w * (0.40000972152f + w * 0.24279078841f);
    float rest = z * (0.66666662693f + w * 0.28498786688f) + high;
    float square = 0.5f * f * f;
    float y = s * (square + rest) + k * 9.0580006145e-6f - square + f + k * 0.69313812256f;
    y = x > 0.0f ? y : x == 0.0f ? -1.0f / 0.0f : 0.0f / 0.0f;
    return x - x == 0.0f ? y : x > 0.0f || x != x ? x : 0.0f / 0.0f;
}

// sqrt_of: bits
/* The square root, within 1.1 units in the last place; NaN below 0. */
static inline float sqrt_of(float x)
{
    int small = x < 1.17549435e-38f;
    float scaled = small ? x * 16777216.0f : x;
    float y = from_bits(0x5F3759DFu - (bits_of(scaled) >> 1));
    y = y * (1.5f - 0.5f * scaled * y * y);
    y = y * (1.5f - 0.5f * scaled * y * y);
    y = scaled * y;
    y = 0.5f * (y + scaled / y);
    y = small ? y * (1.0f / 4096.0f) : y;
    y = x < 0.0f ? 0.0f / 0.0f : y;
    return ((x == 0.0f) | (x - x != 0.0f)) ? (x < 0.0f ? 0.0f / 0.0f : x) : y;
}

// sines: bits
/* sin(r + quarters * pi / 2) for r in +-pi/4. */
static inline float sine(float r, uint32_t quarters)
{
    float z = r * r, s, c, y;
    s = -1.9515295891e-4f;
    s = s * z + 8.3321608736e-3f;
    s = s * z - 1.6666654611e-1f;
    s = s * z * r + r;
    c = 2.443315711809948e-5f;
    c = c * z - 1.388731625493765e-3f;
    c = c * z + 4.166664568298827e-2f;
    c = c * (z * z) - 0.5f * z + 1.0f;
    y = (quarters & 1u) ? c : s;
    return (quarters & 2u) ? -y : y;
}

/* sin(x + quarters * pi / 2) for x in +-8192, within 1.2e-7: pi / 2 is subtracted in three parts. */
static inline float near_sine(float x, uint32_t quarters)
{
    float shifted = x * 0.636619772f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = x - n * 1.5703125f;
    r = r - n * 4.837512969970703125e-4f;
    r = r - n * 7.549789948768648e-8f;
    return sine(r, bits_of(shifted) + quarters);
}

/* The same for every other x: as many bits of 2 / pi as matter for its exponent. */
static inline float far_sine(float x, uint32_t quarters)
{
    static const uint32_t two_over_pi[] = {
        0x00000000u, 0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u, 0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu,
    };
    uint32_t bits = bits_of(x), mantissa = (bits & 0x007FFFFFu) | 0x00800000u;
    uint32_t place, word, shift, parts[3];
    uint64_t turn, whole;
    float r;
    if (x - x != 0.0f)
        return 0.0f / 0.0f;
    place = ((bits >> 23) & 0xFFu) - 120u;
    word = place >> 5;
    shift = place & 31u;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t pair = (uint64_t)two_over_pi[word + i] << 32 | two_over_pi[word + i + 1];
        parts[i] = (uint32_t)(pair << shift >> 32);
    }
    turn = ((uint64_t)mantissa * parts[0]) << 32;
    turn += (uint64_t)mantissa * parts[1];
    turn += ((uint64_t)mantissa * parts[2]) >> 32;
    whole = (turn + (1ull << 61)) >> 62;
    turn -= whole << 62;
    quarters += (uint32_t)whole * ((bits >> 31) ? 3u : 1u);
    r = (float)(int32_t)(uint32_t)(turn >> 32) * 1.4629180792671596e-9f;
    return sine((bits >> 31) ? -r : r, quarters);
}

/* Whether x is beyond +-8192, or NaN. */
static inline uint32_t is_far(float x)
{
    return (int32_t)(bits_of(x) & 0x7FFFFFFFu) > 0x46000000;
}

/* sin(x + quarters * pi / 2) of a row of numbers. The first loop uses vectors; few rows need the second. */
static void sines(float *restrict y, const float *restrict x, size_t size, uint32_t quarters)
{
    uint32_t far = 0;
    for (size_t i = 0; i < size; i++) {
        y[i] = near_sine(x[i], quarters);
        far |= is_far(x[i]);
    }
    if (far)
        for (size_t i = 0; i < size; i++)
            if (is_far(x[i]))
                y[i] = far_sine(x[i], quarters);
}

// exps: exp_of
static void exps(float *restrict y, const float *restrict x, size_t size)
{
    for (size_t i = 0; i < size; i++)
        y[i] = exp_of(x[i]);
}

// logs: log_of
static void logs(float *restrict y, const float *restrict x, size_t size)
{
    for (size_t i = 0; i < size; i++)
        y[i] = log_of(x[i]);
}

// sqrts: sqrt_of
static void sqrts(float *restrict y, const float *restrict x, size_t size)
{
    for (size_t i = 0; i < size; i++)
        y[i] = sqrt_of(x[i]);
}

// tanh_of: exp_of
/* The hyperbolic tangent, within 2 units in the last place. */
static inline float tanh_of(float x)
{
    float size = x < 0.0f ? -x : x, z = x * x, p, far;
    p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * x + x;
    far = 1.0f - 2.0f / (exp_of(size + size) + 1.0f);
    far = x < 0.0f ? -far : far;
    return size < 0.625f ? p : far;
}

// tanhs: tanh_of
static void tanhs(float *restrict y, const float *restrict x, size_t size)
{
    for (size_t i = 0; i < size; i++)
        y[i] = tanh_of(x[i]);
}

// sigmoids: exp_of
/* 1 / (1 + e^-x), within 3 units in the last place where it is above 1.2e-38. */
static void sigmoids(float *restrict y, const float *restrict x, size_t size)
{
    for (size_t i = 0; i < size; i++)
        y[i] = 1.0f / (1.0f + exp_of(-x[i]));
}

// order_of: bits
/* The places of the numbers of a row in falling order, if flip is ~0, or rising, if it is 0: a stable sort by
   one byte after another. `counts` has 256 places, the others have `size`; the result is in `places`. */
static void order_of(const float *restrict x, size_t size, uint32_t flip, uint32_t *restrict keys,
                     uint32_t *places, uint32_t *others, uint32_t *restrict counts)
{
    for (size_t i = 0; i < size; i++) {
        uint32_t bits = bits_of(x[i] + 0.0f);
        keys[i] = flip ^ ((bits & 0x80000000u) ? ~bits : bits | 0x80000000u);
        places[i] = (uint32_t)i;
    }
    for (unsigned shift = 0; shift < 32; shift += 8) {
        uint32_t *turned = places, sum = 0;
        memset(counts, 0, 256 * sizeof *counts);
        for (size_t i = 0; i < size; i++)
            counts[keys[i] >> shift & 255u]++;
        for (size_t i = 0; i < 256; i++) {
            uint32_t count = counts[i];
            counts[i] = sum;
            sum += count;
        }
        for (size_t i = 0; i < size; i++)
            others[counts[keys[places[i]] >> shift & 255u]++] = places[i];
        places = others;
        others = turned;
    }
}

// dot:
/* Sum of a[i] b[i]: eight sums side by side, which are then joined in pairs. */
static inline float dot(const float *restrict a, const float *restrict b, size_t depth)
{
    float s[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    const size_t rest = depth % 8, whole = depth - rest;
    for (size_t i = 0; i < whole; i += 8)
        for (size_t j = 0; j < 8; j++)
            s[j] += a[i + j] * b[i + j];
    for (size_t j = 0; j < rest; j++)
        s[j] += a[whole + j] * b[whole + j];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// columns_1:
/* One number of a matrix product: the sum over i of a[i step] b[i width]. */
static void columns_1(float *restrict y, const float *restrict a, const float *restrict b, size_t depth,
                      size_t step, size_t width)
{
    float s = 0.0f;
    for (size_t i = 0; i < depth; i++)
        s += a[i * step] * b[i * width];
    y[0] = s;
}
