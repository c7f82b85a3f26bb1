/* The start of a program on a Cortex-M with a floating-point unit. newlib's semihosting does the rest. */
#include <stdint.h>

extern uint32_t stack_end[];
extern void _start(void);

void reset(void)
{
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: the floating-point unit on */
    __asm volatile("dsb\n isb");
    *(volatile uint32_t *)0xE000E014u = 0x00FFFFFFu; /* SysTick counts down from there, with the clock */
    *(volatile uint32_t *)0xE000E010u = 5u;
    _start();
}

uint32_t clock_ticks(void)
{
    return 0x00FFFFFFu - *(volatile uint32_t *)0xE000E018u;
}

static void stop(void)
{
    for (;;) {
    }
}

typedef void (*handler)(void);

/* The first word is the stack's end, the others are handlers. */
__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    handler handlers[15];
} vectors = {stack_end, {reset, stop, stop, stop, stop, stop, stop, 0, 0, 0, 0, stop, stop, 0, stop}};
