// Runs one job in a separate process, under a sanitizer: `runner JOB` reads the job and writes JOB.out.
//
// The job, little-endian: the path of the shader's shared object and the kernel's symbol (length, bytes); the
// threadgroups, threads, schedule and timeout; the function constants (index, length, bytes); the threadgroup
// memory's 32 sizes; the buffers (index, whether to return it, length, bytes); and the addresses to write into
// buffers (buffer, offset, target, target's offset). Each number has 64 bits. Every buffer has its own allocation, so
// that the address sanitizer sees accesses beyond its end. Returned buffers are written one after the other.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "shim/msl/engine.h"

namespace {

FILE *job;

uint64_t number() {
    uint64_t value = 0;
    if (fread(&value, 8, 1, job) != 1) abort();
    return value;
}

std::string bytes() {
    std::string text(number(), '\0');
    if (!text.empty() && fread(&text[0], 1, text.size(), job) != text.size()) abort();
    return text;
}

int fail(const char *message) {
    fprintf(stderr, "MSL: %s\n", message);
    return 1;
}

struct Buffer {
    uint64_t index;
    bool returned;
    std::string contents;
    char *memory;
};

struct Address {
    uint64_t buffer, offset, target, target_offset;
};

}  // namespace

int main(int, char **arguments) {
    job = fopen(arguments[1], "rb");
    if (!job) return fail("the job cannot be read");
    std::string library = bytes(), symbol = bytes();
    msl_launch launch{};
    for (uint32_t &n : launch.groups) n = static_cast<uint32_t>(number());
    for (uint32_t &n : launch.threads) n = static_cast<uint32_t>(number());
    launch.schedule = static_cast<uint32_t>(number());
    launch.timeout_seconds = static_cast<uint32_t>(number());

    void *loaded = dlopen(library.c_str(), RTLD_NOW);
    if (!loaded) return fail(dlerror());
    launch.kernel = reinterpret_cast<void (*)(uint32_t)>(dlsym(loaded, symbol.c_str()));
    auto set = reinterpret_cast<size_t (*)(unsigned, const void *)>(dlsym(loaded, "msl_set_function_constant"));
    for (uint64_t count = number(); count > 0; count--) {
        unsigned index = static_cast<unsigned>(number());
        std::string value = bytes();
        set(index, value.data());
    }
    uint64_t sizes[32];
    for (uint64_t &size : sizes) size = number();
    launch.threadgroup_bytes = sizes;

    std::vector<Buffer> buffers(number());
    std::vector<void *> bound;
    for (Buffer &buffer : buffers) {
        buffer.index = number();
        buffer.returned = number() != 0;
        buffer.contents = bytes();
        void *memory = nullptr;
        if (posix_memalign(&memory, 256, buffer.contents.size())) abort();
        buffer.memory = static_cast<char *>(memory);
        memcpy(memory, buffer.contents.data(), buffer.contents.size());
        if (bound.size() <= buffer.index) bound.resize(buffer.index + 1);
        bound[buffer.index] = memory;
    }
    if (bound.size() < 64) bound.resize(64);
    std::vector<Address> addresses(number());
    for (Address &a : addresses) {
        a = {number(), number(), number(), number()};
        char *address = static_cast<char *>(bound[a.target]) + a.target_offset;
        memcpy(static_cast<char *>(bound[a.buffer]) + a.offset, &address, sizeof address);
    }
    fclose(job);
    launch.buffers = bound.data();
    if (msl_run(&launch)) return fail(msl_error());

    FILE *out = fopen((std::string(arguments[1]) + ".out").c_str(), "wb");
    if (!out) return fail("the results cannot be written");
    for (const Buffer &buffer : buffers) {
        if (!buffer.returned) continue;
        for (const Address &a : addresses)  // what the caller gave, not addresses of this process
            if (a.buffer == buffer.index) memcpy(buffer.memory + a.offset, buffer.contents.data() + a.offset, 8);
        fwrite(buffer.memory, 1, buffer.contents.size(), out);
    }
    return fclose(out) ? fail("the results cannot be written") : 0;
}
