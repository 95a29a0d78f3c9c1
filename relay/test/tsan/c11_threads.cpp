// The threads of C11 over those of POSIX, for programs with ThreadSanitizer.
//
// Guarantees: ThreadSanitizer, which knows pthread_create() and its kin only, sees the threads, mutexes and conditions
// of librdkafka. Without it one of our functions that such a thread calls has no state there, and crashes; and what the
// library's queues order would look like races.
//
// The types of both are the same in glibc, by which this is asserted.
#include <cerrno>
#include <memory>

#include <pthread.h>
#include <threads.h>

namespace {

static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) && sizeof(cnd_t) == sizeof(pthread_cond_t));
static_assert(sizeof(thrd_t) == sizeof(pthread_t) && sizeof(once_flag) == sizeof(pthread_once_t));

pthread_mutex_t *
posix(mtx_t *mutex)
{
	return reinterpret_cast<pthread_mutex_t *>(mutex);
}

pthread_cond_t *
posix(cnd_t *condition)
{
	return reinterpret_cast<pthread_cond_t *>(condition);
}

int
c11(int error)
{
	return error == 0 ? thrd_success : error == ETIMEDOUT ? thrd_timedout : error == EBUSY ? thrd_busy : thrd_error;
}

struct Start {
	thrd_start_t function;
	void *argument;
};

void *
run(void *it)
{
	const std::unique_ptr<Start> start(static_cast<Start *>(it));
	return reinterpret_cast<void *>(static_cast<intptr_t>(start->function(start->argument)));
}

} // namespace

extern "C" {

int
thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
	auto start = std::make_unique<Start>(Start{function, argument});
	const int error = pthread_create(thread, nullptr, run, start.get());

	if (error == 0)
		static_cast<void>(start.release());
	return c11(error);
}

int
thrd_join(thrd_t thread, int *result)
{
	void *value = nullptr;
	const int error = pthread_join(thread, &value);

	if (result)
		*result = static_cast<int>(reinterpret_cast<intptr_t>(value));
	return c11(error);
}

int
thrd_detach(thrd_t thread)
{
	return c11(pthread_detach(thread));
}

thrd_t
thrd_current()
{
	return pthread_self();
}

int
mtx_init(mtx_t *mutex, int type)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, type & mtx_recursive ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL);
	return c11(pthread_mutex_init(posix(mutex), &attributes));
}

int
mtx_lock(mtx_t *mutex)
{
	return c11(pthread_mutex_lock(posix(mutex)));
}

int
mtx_trylock(mtx_t *mutex)
{
	return c11(pthread_mutex_trylock(posix(mutex)));
}

int
mtx_unlock(mtx_t *mutex)
{
	return c11(pthread_mutex_unlock(posix(mutex)));
}

void
mtx_destroy(mtx_t *mutex)
{
	pthread_mutex_destroy(posix(mutex));
}

int
cnd_init(cnd_t *condition)
{
	return c11(pthread_cond_init(posix(condition), nullptr));
}

int
cnd_signal(cnd_t *condition)
{
	return c11(pthread_cond_signal(posix(condition)));
}

int
cnd_broadcast(cnd_t *condition)
{
	return c11(pthread_cond_broadcast(posix(condition)));
}

int
cnd_wait(cnd_t *condition, mtx_t *mutex)
{
	return c11(pthread_cond_wait(posix(condition), posix(mutex)));
}

int
cnd_timedwait(cnd_t *condition, mtx_t *mutex, const timespec *until)
{
	return c11(pthread_cond_timedwait(posix(condition), posix(mutex), until));
}

void
cnd_destroy(cnd_t *condition)
{
	pthread_cond_destroy(posix(condition));
}

void
call_once(once_flag *flag, void (*function)())
{
	pthread_once(reinterpret_cast<pthread_once_t *>(flag), function);
}

} // extern "C"
