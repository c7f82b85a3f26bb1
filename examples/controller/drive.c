/* A policy process without Python: it answers a robot's observations over TCP, as docs/export.md describes it.

   ./drive HOST PORT connects to `robopolicy deploy BUNDLE --wait --host HOST --port PORT`, or to a robot of your
   own. Where several observations wait, it answers the newest. A robot that is silent for five seconds is lost. The
   processor must be little-endian. */
#define _POSIX_C_SOURCE 200809L
#include "policy.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { HELLO = 1, OBSERVATION = 2, COMMAND = 3, STOP = 4, BEGIN = 5, VERSION = 1, LONGEST_REASON = 500, SILENCE = 5 };

#define ADD_SIZE(name) +sizeof(((policy_readings *)0)->name)
#define UNPACK(name)                                              \
    memcpy(&readings.name, payload + taken, sizeof readings.name); \
    taken += sizeof readings.name;
#define READINGS_SIZE (0 POLICY_FOR_EACH_READING(ADD_SIZE))

static policy_readings readings;
static policy_results results;
static policy_state state;
static policy_work work;
static unsigned char payload[READINGS_SIZE + LONGEST_REASON + 1];

typedef struct {
    char magic[4];
    uint8_t version, kind, zero[2];
    uint32_t length, checksum;
    uint64_t sequence, nanoseconds;
} header; /* 32 bytes without a gap */

static unsigned char arrived[sizeof(header) + sizeof payload]; /* and not taken yet: room for the longest message */
static size_t waiting;

static uint32_t checksum_of(const unsigned char *bytes, size_t size)
{
    uint32_t sum = ~0u;
    for (size_t i = 0; i < size; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1u ? 0xEDB88320u : 0u);
    }
    return ~sum;
}

static void fail(const char *why)
{
    fprintf(stderr, "drive: %s\n", why);
    exit(1);
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints, *found, *one;
    struct timeval silence = {SILENCE, 0};
    int robot = -1, yes = 1;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &hints, &found) != 0)
        fail("the robot's address is unknown");
    for (one = found; one != NULL && robot < 0; one = one->ai_next) {
        robot = socket(one->ai_family, one->ai_socktype, one->ai_protocol);
        if (robot >= 0 && connect(robot, one->ai_addr, one->ai_addrlen) != 0) {
            close(robot);
            robot = -1;
        }
    }
    freeaddrinfo(found);
    if (robot < 0)
        fail("no robot answers there");
    setsockopt(robot, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(robot, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    return robot;
}

static void send_all(int robot, const void *bytes, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t now = send(robot, (const char *)bytes + sent, size - sent, MSG_NOSIGNAL);
        if (now <= 0)
            fail("the robot has closed the connection");
        sent += (size_t)now;
    }
}

/* Read what has arrived, or wait for it without MSG_DONTWAIT in `flags`. Returns whether there was anything. */
static int receive(int robot, int flags)
{
    ssize_t now = recv(robot, arrived + waiting, sizeof arrived - waiting, flags);
    if (now < 0 && (flags & MSG_DONTWAIT) && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (now <= 0)
        fail(now == 0 ? "the robot has closed the connection" : "the robot is silent");
    waiting += (size_t)now;
    return 1;
}

static void send_message(int robot, int kind, uint64_t sequence, uint64_t nanoseconds, const void *bytes, size_t size)
{
    unsigned char message[sizeof(header) + sizeof results.command + LONGEST_REASON];
    header head = {{'R', 'P', 'O', 'L'}, VERSION, 0, {0, 0}, 0, 0, 0, 0};
    head.kind = (uint8_t)kind;
    head.length = (uint32_t)size;
    head.checksum = checksum_of(bytes, size);
    head.sequence = sequence;
    head.nanoseconds = nanoseconds;
    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, bytes, size);
    send_all(robot, message, sizeof head + size);
}

/* Take the first message that has arrived, if it is complete: its payload into `payload`. */
static int take_message(header *taken)
{
    header head;
    size_t size;
    int right;
    if (waiting < sizeof head)
        return 0;
    memcpy(&head, arrived, sizeof head);
    right = (head.kind == HELLO && head.length == 32) || (head.kind == OBSERVATION && head.length == READINGS_SIZE)
            || (head.kind == STOP && head.length <= LONGEST_REASON) || (head.kind == BEGIN && head.length == 0);
    if (memcmp(head.magic, "RPOL", 4) != 0 || head.version != VERSION || head.zero[0] || head.zero[1] || !right)
        fail("the robot sent something that is not an allowed message");
    size = sizeof head + head.length;
    if (waiting < size)
        return 0;
    memcpy(payload, arrived + sizeof head, head.length);
    waiting -= size;
    memmove(arrived, arrived + size, waiting);
    if (checksum_of(payload, head.length) != head.checksum)
        fail("a message was damaged in transit");
    *taken = head;
    return 1;
}

static header receive_message(int robot)
{
    header head;
    while (!take_message(&head))
        receive(robot, 0);
    return head;
}

/* The last message that has arrived; or a STOP or BEGIN before it. An answer to an older one would be too late. */
static header newest_message(int robot)
{
    header head = receive_message(robot);
    while (head.kind != STOP && head.kind != BEGIN)
        if (!take_message(&head) && !receive(robot, MSG_DONTWAIT))
            break;
    return head;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **words)
{
    static const unsigned char agreed[32] = POLICY_PROTOCOL_DIGEST;
    uint64_t sequence = 0;
    unsigned long answered = 0;
    int robot;
    if (count != 3)
        fail("usage: drive HOST PORT");
    robot = connect_to(words[1], words[2]);
    send_message(robot, HELLO, 0, 0, agreed, sizeof agreed);
    if (receive_message(robot).kind != HELLO || memcmp(payload, agreed, sizeof agreed) != 0)
        fail("the robot has another bundle");
    policy_reset(&state);
    for (;;) {
        header head = newest_message(robot);
        uint64_t began = now();
        size_t taken = 0;
        int code;
        if (head.kind == STOP)
            break;
        if (head.kind == BEGIN) {
            policy_reset(&state);
            continue;
        }
        if (head.kind != OBSERVATION || head.sequence <= sequence)
            fail("the robot broke the order of messages");
        sequence = head.sequence;
        POLICY_FOR_EACH_READING(UNPACK)
        code = policy_run(&state, &work, &readings, &results);
        if (code != POLICY_OK) {
            char reason[60];
            int size = snprintf(reason, sizeof reason, "the policy refuses an observation: code %d", code);
            send_message(robot, STOP, 0, 0, reason, (size_t)size);
            fail(reason);
        }
        send_message(robot, COMMAND, sequence, now() - began, &results.command, sizeof results.command);
        answered++;
    }
    printf("%lu observations answered\n", answered);
    close(robot);
    return 0;
}
