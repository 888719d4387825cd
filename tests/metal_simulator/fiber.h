// Fibers: stacks that a scheduler switches between. The sanitizers learn of them through their public interfaces, which
// are null in a process without sanitizer.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "shim/msl/engine.h"

extern "C" {
#define OPTIONAL __attribute__((weak))
void *__tsan_get_current_fiber() OPTIONAL;
void *__tsan_create_fiber(unsigned) OPTIONAL;
void __tsan_destroy_fiber(void *) OPTIONAL;
void __tsan_switch_to_fiber(void *, unsigned) OPTIONAL;
void __tsan_acquire(void *) OPTIONAL;
void __tsan_release(void *) OPTIONAL;
void __sanitizer_start_switch_fiber(void **, const void *, size_t) OPTIONAL;
void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) OPTIONAL;
void __asan_unpoison_memory_region(const volatile void *, size_t) OPTIONAL;
void msl_switch_stack(void **from, void *to);
}

// Saves the registers that a function keeps (System V, x86-64) and the stack pointer; continues on the other stack.
asm(R"(
.text
.globl msl_switch_stack
.type msl_switch_stack,@function
msl_switch_stack:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
)");

namespace {

// The thread sanitizer marks every byte of a new stack, so there they are small.
const size_t stack_bytes = __tsan_create_fiber ? 64 * 1024 : 256 * 1024;
constexpr unsigned no_sync = 1;  // switching fibers orders no memory

enum class State { ready, simd_operation, simdgroup_barrier, threadgroup_barrier, finished };

struct Fiber {
    void *stack_pointer = nullptr, *tsan = nullptr, *fake_stack = nullptr;
    char *stack = nullptr;
    State state = State::finished;
    msl_site site{};
    const char *operation = "";
    const void *value = nullptr;
    uint32_t bytes = 0, active = 0;
    uint32_t barriers[2] = {0, 0};  // how many it has passed, per scope
};

std::vector<Fiber> fibers;
Fiber *current = nullptr;
struct {
    void *stack_pointer, *tsan, *fake_stack;
    const void *stack;
    size_t stack_size;
} scheduler;

char *reserve(size_t bytes) {  // address space; pages come when touched
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    return static_cast<char *>(memory);
}

void leave_fiber() {
    Fiber *self = current;
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(scheduler.tsan, no_sync);
    if (__sanitizer_start_switch_fiber) {
        void **keep = self->state == State::finished ? nullptr : &self->fake_stack;
        __sanitizer_start_switch_fiber(keep, scheduler.stack, scheduler.stack_size);
    }
    msl_switch_stack(&self->stack_pointer, scheduler.stack_pointer);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(self->fake_stack, &scheduler.stack, &scheduler.stack_size);
}

void resume(Fiber &fiber) {
    current = &fiber;
    if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(fiber.tsan, no_sync);
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&scheduler.fake_stack, fiber.stack, stack_bytes);
    msl_switch_stack(&scheduler.stack_pointer, fiber.stack_pointer);
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(scheduler.fake_stack, nullptr, nullptr);
    current = nullptr;
}

// Makes the fiber begin with `main`, which must not return.
void start(Fiber &fiber, void (*main)()) {
    if (__tsan_create_fiber) {  // new fiber and stack: threads of different threadgroups are not ordered
        if (fiber.tsan) __tsan_destroy_fiber(fiber.tsan);
        if (fiber.stack) munmap(fiber.stack, stack_bytes);
        fiber.stack = nullptr;
    }
    if (!fiber.stack) {
        fiber.stack = reserve(stack_bytes);
        mprotect(fiber.stack, 4096, PROT_NONE);
    }
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(fiber.stack, stack_bytes);
    if (__tsan_create_fiber) fiber.tsan = __tsan_create_fiber(0);
    void **top = reinterpret_cast<void **>(fiber.stack + stack_bytes);
    *--top = nullptr;  // main's return address; keeps the stack aligned
    *--top = reinterpret_cast<void *>(main);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber.stack_pointer = top;
    fiber.fake_stack = nullptr;
    fiber.state = State::ready;
    fiber.barriers[0] = fiber.barriers[1] = 0;
}

}  // namespace
