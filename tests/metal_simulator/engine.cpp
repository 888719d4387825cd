// Runs one kernel launch: each thread of a threadgroup is a fiber, and fibers meet at barriers and simd operations.
//
// A fiber runs until it waits. When all lanes of a simd group wait, they must wait at the same place: then a simd
// operation exchanges their values. When no simd group can go on, all threads must wait at the same barrier or have
// finished. Anything else is an error of the kernel. The schedule decides in which order fibers run between two
// such meetings, so that code which relies on an order gives different results in different schedules.
//
// Never compiled with a sanitizer: its writes stand for the hardware's, which race with nothing.
#include "crash_guard.h"
#include "fiber.h"
#include "shim/msl/engine.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr size_t threadgroup_limit = 32 * 1024;
constexpr uint32_t simd_width = 32, thread_limit = 1024;

struct Variable {  // in threadgroup memory
    int id;
    size_t bytes;
    void *memory;
};

const msl_launch *launch = nullptr;
uint32_t group_position[3];
std::vector<Variable> variables;
// For the thread sanitizer, which treats new memory as written by the fiber that reserves it: reserve before any runs.
char *arena, *tokens;
char message[1024];
char lane_values[thread_limit / simd_width][simd_width * 64];  // what an exchange returns

bool fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return false;
}

// Not memcpy and memset: the thread sanitizer would count their calls as accesses of the kernel.
void copy_bytes(volatile char *to, const volatile char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = from[i];
}
void fill_with_ones(volatile char *to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = '\xFF';
}

// For the thread sanitizer: the launch comes before every thread, and every thread before the launch's end.
char launch_begins, launch_ends;

void fiber_main() {
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack, &scheduler.stack_size);
    if (__tsan_acquire) __tsan_acquire(&launch_begins);
    launch->kernel(static_cast<uint32_t>(current - fibers.data()));
    if (__tsan_release) __tsan_release(&launch_ends);
    current->state = State::finished;
    current->operation = "return";
    leave_fiber();
    abort();  // a finished fiber is never resumed
}

// ---- Order

struct Order {
    uint32_t schedule;
    std::mt19937 random{schedule};

    void arrange(std::vector<uint32_t> &items) {
        if (schedule == 1) std::reverse(items.begin(), items.end());
        if (schedule > 1)
            for (size_t i = items.size(); i > 1; i--) std::swap(items[i - 1], items[random() % i]);
    }

    std::vector<uint32_t> of(uint32_t count) {
        std::vector<uint32_t> items(count);
        for (uint32_t i = 0; i < count; i++) items[i] = i;
        arrange(items);
        return items;
    }
};

// ---- Meetings

bool same_site(const Fiber &a, const Fiber &b) {
    return a.state == b.state && a.site.line == b.site.line && a.site.column == b.site.column &&
           !strcmp(a.site.file, b.site.file) && a.bytes == b.bytes;
}

void describe(const Fiber &fiber, char *text, size_t size) {
    if (fiber.state == State::finished)
        snprintf(text, size, "have returned");
    else
        snprintf(text, size, "wait in %s at %s:%d", fiber.operation, fiber.site.file, fiber.site.line);
}

// All lanes of the simd group [begin, end) wait or have finished. Lets lanes at a simd operation or simdgroup barrier
// continue. If there are none, sets *waits to false: the lanes wait for other simd groups.
bool meet_in_simdgroup(uint32_t group, uint32_t begin, uint32_t end, bool *waits) {
    Fiber *first = nullptr;
    uint32_t active = 0;
    for (uint32_t i = begin; i < end; i++) {
        State state = fibers[i].state;
        if (state != State::simd_operation && state != State::simdgroup_barrier) continue;
        if (!first) first = &fibers[i];
        active |= 1u << (i - begin);
    }
    *waits = first != nullptr;
    if (!first) return true;
    uint32_t together = 0;
    Fiber *other = nullptr;
    for (uint32_t i = begin; i < end; i++) {
        if (same_site(fibers[i], *first)) together++;
        else if (!other) other = &fibers[i];
    }
    if (other) {
        char where[256];
        describe(*other, where, sizeof where);
        return fail("%s:%d: %s in divergent control flow: %u of %u lanes reach it, others %s (simd group %u)",
                    first->site.file, first->site.line, first->operation, together, end - begin, where, group);
    }
    char *values = lane_values[group];
    if (first->state == State::simd_operation) {
        fill_with_ones(values, sizeof lane_values[group]);
        for (uint32_t i = begin; i < end; i++)
            copy_bytes(values + (i - begin) * first->bytes, static_cast<const char *>(fibers[i].value), first->bytes);
    }
    for (uint32_t i = begin; i < end; i++) {
        fibers[i].value = values;
        fibers[i].active = active;
        fibers[i].state = State::ready;
    }
    return true;
}

// No simd group can go on: all threads must wait at one threadgroup barrier, or have finished.
bool meet_in_threadgroup(uint32_t threads, bool *finished) {
    Fiber *first = nullptr;
    for (uint32_t i = 0; i < threads && !first; i++)
        if (fibers[i].state == State::threadgroup_barrier) first = &fibers[i];
    *finished = first == nullptr;
    if (!first) return true;
    uint32_t together = 0;
    Fiber *other = nullptr;
    for (uint32_t i = 0; i < threads; i++) {
        if (same_site(fibers[i], *first)) together++;
        else if (!other) other = &fibers[i];
    }
    if (other) {
        char where[256];
        describe(*other, where, sizeof where);
        return fail("%s:%d: threadgroup_barrier reached by %u of %u threads, others %s", first->site.file,
                    first->site.line, together, threads, where);
    }
    for (uint32_t i = 0; i < threads; i++) fibers[i].state = State::ready;
    return true;
}

bool run_simdgroup(uint32_t group, uint32_t threads, Order &order) {
    uint32_t begin = group * simd_width, end = std::min(begin + simd_width, threads);
    for (bool waits = true; waits;) {
        std::vector<uint32_t> ready;
        for (uint32_t i = begin; i < end; i++)
            if (fibers[i].state == State::ready) ready.push_back(i);
        order.arrange(ready);
        for (uint32_t i : ready) resume(fibers[i]);
        if (!meet_in_simdgroup(group, begin, end, &waits)) return false;
    }
    return true;
}

void free_threadgroup_memory() {
    if (!__tsan_create_fiber)
        for (Variable &variable : variables) free(variable.memory);
    variables.clear();
}

bool run_threadgroup(uint32_t threads, Order &order) {
    free_threadgroup_memory();
    for (uint32_t i = 0; i < threads; i++) start(fibers[i], fiber_main);
    for (bool finished = false; !finished;) {
        for (uint32_t group : order.of((threads + simd_width - 1) / simd_width))
            if (!run_simdgroup(group, threads, order)) return false;
        if (!meet_in_threadgroup(threads, &finished)) return false;
        size_t bytes = 0;
        for (const Variable &variable : variables) bytes += variable.bytes;
        if (bytes > threadgroup_limit)
            return fail("threadgroup memory: the kernel declares %zu bytes, more than %zu", bytes, threadgroup_limit);
    }
    return true;
}

uint32_t group_index;  // counts the threadgroups of all launches: names what the thread sanitizer synchronises on

bool run_grid() {
    const uint32_t *groups = launch->groups, *threads = launch->threads;
    uint64_t size = uint64_t(threads[0]) * threads[1] * threads[2];
    if (size < 1 || size > thread_limit)
        return fail("a threadgroup has 1 to %u threads, not %llu", thread_limit, static_cast<unsigned long long>(size));
    if (fibers.size() < size) fibers.resize(size);
    if (__tsan_get_current_fiber) scheduler.tsan = __tsan_get_current_fiber();
    if (__tsan_release) __tsan_release(&launch_begins);
    Order order{launch->schedule};
    for (uint32_t group : order.of(groups[0] * groups[1] * groups[2])) {
        group_position[0] = group % groups[0];
        group_position[1] = group / groups[0] % groups[1];
        group_position[2] = group / groups[0] / groups[1];
        if (!run_threadgroup(static_cast<uint32_t>(size), order)) {
            size_t length = strlen(message);
            snprintf(message + length, sizeof message - length, " [threadgroup %u, %u, %u; schedule %u]",
                     group_position[0], group_position[1], group_position[2], launch->schedule);
            return false;
        }
        group_index++;
    }
    if (__tsan_acquire) __tsan_acquire(&launch_ends);
    return true;
}

// ---- One launch

bool run_in_guard() {
    Guard guard(launch->timeout_seconds, [] { return current != nullptr; });
    int number = sigsetjmp(escape, 1);
    if (number == 0) return run_grid();
    const char *what = number == timeout_signal ? "does not end" : strsignal(number);
    long thread = current - fibers.data();
    current = nullptr;
    return fail("the kernel stopped: %s (thread %ld of threadgroup %u, %u, %u; last seen at %s:%d); the sanitizers "
                "name the line", what, thread, group_position[0], group_position[1], group_position[2],
                fibers[thread].site.file ? fibers[thread].site.file : "its beginning", fibers[thread].site.line);
}

// A jump out of a signal handler loses registers that the kernel of the system cleared for the handler: with AMX, the
// configuration of the tiles, which llama.cpp sets once in each thread. So a launch has a thread of its own.
bool run_guarded() {
    bool good = false;
    std::thread([&] { good = run_in_guard(); }).join();
    return good;
}

void wait_at(State state, const char *operation, msl_site site) {
    current->state = state;
    current->operation = operation;
    current->site = site;
    leave_fiber();
}

// The address on which the thread sanitizer synchronises a barrier. No earlier barrier of these threads and no other
// threadgroup has the same.
void *barrier_token(const Fiber &fiber, int scope) {
    size_t simdgroup = static_cast<size_t>(&fiber - fibers.data()) / simd_width;
    size_t index = scope == msl_threadgroup ? simd_width : simdgroup;
    size_t row = (size_t(group_index) * 2 + fiber.barriers[scope] % 2) % (1 << 20);
    return tokens + (row * 64 + index) * 8;
}

}  // namespace

extern "C" {

// Rounds float to bfloat, to nearest, ties to even. clang calls it, and its run-time library may lack it.
OPTIONAL __bf16 __truncsfbf2(float x) {
    uint32_t bits = __builtin_bit_cast(uint32_t, x);
    bool nan = x != x;
    bits = nan ? bits | 0x400000u : bits + 0x7FFFu + (bits >> 16 & 1u);
    return __builtin_bit_cast(__bf16, static_cast<uint16_t>(bits >> 16));
}

void msl_barrier(int scope, int flags, msl_site site) {
    Fiber *self = current;
    void *token = barrier_token(*self, scope);
    self->barriers[scope]++;
    self->bytes = 0;
    if (flags && __tsan_release) __tsan_release(token);
    if (scope == msl_threadgroup) wait_at(State::threadgroup_barrier, "threadgroup_barrier", site);
    else wait_at(State::simdgroup_barrier, "simdgroup_barrier", site);
    if (flags && __tsan_acquire) __tsan_acquire(token);
}

const void *msl_exchange(const void *value, uint32_t bytes, const char *operation, msl_site site, uint32_t *active) {
    Fiber *self = current;
    self->value = value;
    self->bytes = bytes;
    wait_at(State::simd_operation, operation, site);
    *active = self->active;
    return self->value;
}

uint32_t msl_lane() { return static_cast<uint32_t>(current - fibers.data()) % simd_width; }

void *msl_threadgroup_memory(int id, size_t bytes, size_t alignment, const char *) {
    for (const Variable &variable : variables)
        if (variable.id == id) return variable.memory;
    void *memory = nullptr;
    if (__tsan_create_fiber) {  // new addresses: those of another threadgroup would look like a race
        static size_t used = 0;
        used = (used + 63) & ~size_t(63);
        memory = arena + used;
        used += bytes;
    } else if (posix_memalign(&memory, std::max<size_t>(alignment, 16), bytes)) {
        abort();
    }
    fill_with_ones(static_cast<char *>(memory), bytes);
    variables.push_back({id, bytes, memory});
    return memory;
}

const msl_launch *msl_current(uint32_t group[3]) {
    for (int i = 0; i < 3; i++) group[i] = group_position[i];
    return launch;
}

int msl_run(const msl_launch *what) {
    launch = what;
    message[0] = 0;
    if (!tokens) tokens = reserve(size_t(1) << 30);
    if (!arena) arena = reserve(size_t(1) << 32);
    bool sanitized = __tsan_create_fiber || __sanitizer_start_switch_fiber;
    bool good = sanitized ? run_grid() : run_guarded();
    free_threadgroup_memory();
    return good ? 0 : 1;
}

const char *msl_error() { return message; }
}
