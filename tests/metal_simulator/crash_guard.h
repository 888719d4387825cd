// Turns crashes and endless loops of a kernel into errors where no sanitizer catches them: a signal handler jumps from
// the kernel's fiber to the `sigsetjmp(escape, 1)` of the Guard's owner.
#pragma once
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace {

sigjmp_buf escape;
const int timeout_signal = SIGRTMIN + 3;

bool (*in_kernel)();  // whether the signal is the kernel's

void on_signal(int number) {
    if (!in_kernel()) {  // not the kernel's: as if there were no handler
        signal(number, SIG_DFL);
        return;
    }
    siglongjmp(escape, number);
}

class Guard {
  public:
    Guard(uint32_t seconds, bool (*is_running)()) {
        in_kernel = is_running;
        static char alternate[65536];
        stack_t stack{};
        stack.ss_sp = alternate;
        stack.ss_size = sizeof alternate;
        sigaltstack(&stack, &old_stack);
        struct sigaction action {};
        action.sa_handler = on_signal;
        action.sa_flags = SA_ONSTACK | SA_NODEFER;
        for (int i = 0; i < count; i++) sigaction(numbers[i], &action, &old_actions[i]);
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = timeout_signal;
        event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
        has_timer = timer_create(CLOCK_MONOTONIC, &event, &timer) == 0;
        itimerspec when{};
        when.it_value.tv_sec = seconds;
        when.it_interval.tv_nsec = 10'000'000;  // fires again if it fired between two fibers
        if (has_timer) timer_settime(timer, 0, &when, nullptr);
    }
    ~Guard() {
        if (has_timer) timer_delete(timer);
        for (int i = 0; i < count; i++) sigaction(numbers[i], &old_actions[i], nullptr);
        sigaltstack(&old_stack, nullptr);
    }

  private:
    static constexpr int count = 5;
    const int numbers[count] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, timeout_signal};
    struct sigaction old_actions[count];
    stack_t old_stack{};
    timer_t timer{};
    bool has_timer = false;
};

}  // namespace
