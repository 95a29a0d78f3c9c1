// An outlet over a sink that does what the test says. Nothing here waits for a time: each wait is for a result, a
// delivery or a probe.
#include "flow/outlet.h"

#include <condition_variable>
#include <future>

#include <gtest/gtest.h>

using namespace relay;
using namespace std::chrono_literals;

namespace {

constexpr Code codes[] = {{"BAD", Fault::message, ""}, {"LATER", Fault::moment, ""}, {"AWAY", Fault::sink, ""}};

// Things that happened on another thread, to be waited for.
template <class T>
class Happened {
public:
	void put(T thing)
	{
		std::lock_guard lock(mutex);
		things.push_back(std::move(thing));
		changed.notify_all();
	}
	T next()
	{
		std::unique_lock lock(mutex);
		changed.wait(lock, [&] { return !things.empty(); });
		T thing = std::move(things.front());
		things.pop_front();
		return thing;
	}
	bool none()
	{
		std::lock_guard lock(mutex);
		return things.empty();
	}

private:
	std::mutex mutex;
	std::condition_variable changed;
	std::deque<T> things;
};

struct Hand {
	std::string outbox_id;
	uint64_t ticket;
};

struct Script {
	Happened<Hand> handed;
	Happened<std::function<void(Answer)>> probes;
	Answers *answers = nullptr;
	bool by_topic = false; // each topic is an endpoint
	std::atomic<bool> may_end{true};
};

class TestSink final : public Sink {
public:
	explicit TestSink(std::shared_ptr<Script> script) : script(std::move(script)) {}
	~TestSink() override { script->may_end.wait(false); }
	void start(Answers &answers) override { script->answers = &answers; }
	void deliver(std::vector<std::unique_ptr<Delivery>> deliveries) override
	{
		for (auto &delivery : deliveries)
			script->handed.put({delivery->message.outbox_id, delivery->ticket});
	}
	void probe(const std::string &, std::function<void(Answer)> done) override { script->probes.put(std::move(done)); }
	std::string endpoint(const Delivery &delivery) const override { return script->by_topic ? delivery.to.topic : ""; }
	Text objection(const Delivery &delivery) const override
	{
		if (delivery.to.topic == "illegal")
			return "no such name";
		return {};
	}

private:
	std::shared_ptr<Script> script;
};

struct Collected final : Results {
	Happened<Result> results;
	Happened<int> nudges;
	void ended(Result result) override { results.put(std::move(result)); }
	void flush() override {}
	void nudge() override { nudges.put(0); }
};

class OutletTest : public testing::Test {
protected:
	void start(size_t max_in_flight = 10, std::chrono::milliseconds timeout = 1h, size_t max_per_endpoint = 0,
			   bool fixed = true)
	{
		SinkConfig config;

		config.settings = {.name = "test",
						   .type = "test",
						   .max_in_flight = max_in_flight,
						   .max_per_endpoint = max_per_endpoint,
						   .timeout = timeout};
		config.make = [script = script] { return std::make_unique<TestSink>(script); };
		config.taxonomy = [this] {
			Taxonomy taxonomy(codes);
			taxonomy.change("TIMEOUT", fault_of_timeout);
			return taxonomy;
		};
		outlet = std::make_unique<Outlet>(config, fixed, Observers{metrics, board, tracer});
		outlet->watch(collected);
	}

	void submit(uint64_t number, const std::string &topic = "topic", bool lease_holds = true)
	{
		Parcel parcel;

		parcel.number = number;
		parcel.results = collected;
		parcel.routes = routes;
		parcel.route = &routes->all().front();
		parcel.delivery = std::make_unique<Delivery>();
		Message &message = parcel.delivery->message;
		message.outbox_id = std::to_string(number);
		message.event_type = "type";
		message.payload = "1";
		message.routing_key = topic;
		parcel.lease_end = std::make_shared<LeaseEnd>(lease_holds ? Clock::now() + 1h : Clock::now());
		outlet->submit(std::move(parcel));
		outlet->flush();
	}

	void answer(const Hand &hand, const std::string &code = "")
	{
		Answer answer;

		answer.accepted = code.empty();
		answer.code = code;
		script->answers->answer(hand.ticket, std::move(answer));
	}

	static std::shared_ptr<const Routes> make_routes()
	{
		Route route;

		route.sink = "test";
		return std::make_shared<const Routes>(std::vector<Route>{route});
	}

	Fault fault_of_timeout = Fault::moment;
	Metrics metrics;
	Board board;
	Tracer tracer{{}, metrics};
	std::shared_ptr<const Routes> routes = make_routes();
	std::shared_ptr<Script> script = std::make_shared<Script>();
	std::shared_ptr<Collected> collected = std::make_shared<Collected>();
	std::unique_ptr<Outlet> outlet;
};

} // namespace

TEST_F(OutletTest, TellsWhatTheSinkSaid)
{
	start();
	std::map<std::string, Verdict> expected{{"", Verdict::accepted},
											{"BAD", Verdict::refused},
											{"LATER", Verdict::try_again},
											{"NEVER HEARD OF", Verdict::try_again}};
	uint64_t number = 0;

	for (const auto &[code, verdict] : expected)
	{
		submit(++number);
		answer(script->handed.next(), code);
		Result result = collected->results.next();
		EXPECT_EQ(result.number, number);
		EXPECT_EQ(result.verdict, verdict) << code;
		EXPECT_EQ(result.answer.code, code);
	}
}

TEST_F(OutletTest, RefusesAnIllegalDestinationWithoutTheSink)
{
	start();
	submit(1, "illegal");
	Result result = collected->results.next();
	EXPECT_EQ(result.verdict, Verdict::refused);
	EXPECT_EQ(result.answer.code, "ILLEGAL_DESTINATION");
	EXPECT_TRUE(script->handed.none());
}

TEST_F(OutletTest, HandsOverAtMostSoMany)
{
	start(2);
	for (uint64_t number = 1; number <= 3; number++)
		submit(number);
	auto first = script->handed.next();
	script->handed.next();
	// The refusal of the fourth shows that the third was seen, and was not handed over.
	submit(4, "illegal");
	EXPECT_EQ(collected->results.next().number, 4u);
	EXPECT_TRUE(script->handed.none());
	answer(first);
	EXPECT_EQ(script->handed.next().outbox_id, "3");
}

TEST_F(OutletTest, LetsEndpointsTakeTurns)
{
	script->by_topic = true;
	start(10, 1h, 1);
	submit(1, "a");
	submit(2, "a");
	submit(3, "b");
	auto first = script->handed.next();
	EXPECT_EQ(first.outbox_id, "1");
	EXPECT_EQ(script->handed.next().outbox_id, "3");
	answer(first);
	EXPECT_EQ(script->handed.next().outbox_id, "2");
}

TEST_F(OutletTest, GivesBackWhatWaitsForASinkThatIsAway)
{
	start(2);
	for (uint64_t number = 1; number <= 4; number++)
		submit(number);
	auto first = script->handed.next(), second = script->handed.next();
	answer(first, "AWAY");
	std::map<uint64_t, Verdict> verdicts;
	for (int i = 0; i < 3; i++)
	{
		Result result = collected->results.next();
		verdicts[result.number] = result.verdict;
	}
	EXPECT_EQ(verdicts,
			  (std::map<uint64_t, Verdict>{{1, Verdict::try_again}, {3, Verdict::untried}, {4, Verdict::untried}}));
	// What was in its hands is one try as well.
	answer(second, "AWAY");
	EXPECT_EQ(collected->results.next().verdict, Verdict::try_again);
	EXPECT_EQ(outlet->room(), 0u);
	// What comes now is not handed over.
	submit(5);
	EXPECT_EQ(collected->results.next().verdict, Verdict::untried);
	EXPECT_TRUE(script->handed.none());
}

// One means: a message to try with.
TEST_F(OutletTest, NeverHasRoomForOneWhileTheSinkIsThere)
{
	for (size_t max_in_flight = 1; max_in_flight <= 5; max_in_flight++)
	{
		start(max_in_flight);
		for (uint64_t number = 1; number <= 2 * max_in_flight; number++)
		{
			submit(number);
			// Refused in a turn of the loop after that of the first.
			for (uint64_t other : {100, 101})
			{
				submit(other, "illegal");
				EXPECT_EQ(collected->results.next().number, other);
			}
			EXPECT_NE(outlet->room(), 1u) << number << " of " << max_in_flight;
		}
		outlet.reset();
		while (!collected->results.none())
			collected->results.next();
		while (!script->handed.none())
			script->handed.next();
	}
}

TEST_F(OutletTest, GivesBackWhatWaitsOnceItIsRetired)
{
	start(1);
	submit(1);
	auto first = script->handed.next();
	submit(2);
	outlet->retire(false);
	Result result = collected->results.next();
	EXPECT_EQ(result.number, 2u);
	EXPECT_EQ(result.verdict, Verdict::untried);
	EXPECT_EQ(result.delay, 0ms);
	submit(3);
	result = collected->results.next();
	EXPECT_EQ(result.number, 3u);
	EXPECT_EQ(result.verdict, Verdict::untried);
	answer(first);
	EXPECT_EQ(collected->results.next().verdict, Verdict::accepted);
	EXPECT_TRUE(script->handed.none());
}

TEST_F(OutletTest, TriesOneMessageAfterAProbeThatReachedTheSink)
{
	start();
	submit(1);
	answer(script->handed.next(), "AWAY");
	collected->results.next();
	while (!collected->nudges.none())
		collected->nudges.next();
	script->probes.next()({.accepted = false, .code = "AWAY"});
	script->probes.next()({.accepted = true});
	collected->nudges.next();
	EXPECT_EQ(outlet->room(), 1u);
	submit(2);
	submit(3);
	auto second = script->handed.next();
	submit(4, "illegal");
	EXPECT_EQ(collected->results.next().number, 4u);
	EXPECT_TRUE(script->handed.none());
	answer(second);
	EXPECT_EQ(script->handed.next().outbox_id, "3");
	EXPECT_EQ(collected->results.next().verdict, Verdict::accepted);
}

// What was handed over before the breaker opened tells of that outage, and not of what came after it.
TEST_F(OutletTest, IsNotAwayAgainByTheLateWordOfAnOutageThatIsOver)
{
	start();
	submit(1);
	submit(2);
	auto first = script->handed.next(), second = script->handed.next();
	answer(first, "AWAY");
	collected->results.next();
	script->probes.next()({.accepted = true});
	answer(second, "AWAY");
	EXPECT_EQ(collected->results.next().number, 2u);
	submit(3);
	submit(4, "illegal");
	ASSERT_EQ(collected->results.next().number, 4u); // and not the third, given back
	// The word of the one that was to try it counts.
	answer(script->handed.next(), "AWAY");
	EXPECT_EQ(collected->results.next().number, 3u);
	submit(5);
	EXPECT_EQ(collected->results.next().verdict, Verdict::untried);
}

TEST_F(OutletTest, IsNotAwayAgainByALateTimeout)
{
	fault_of_timeout = Fault::sink;
	start(10, 1500ms);
	submit(1);
	submit(2);
	auto first = script->handed.next();
	script->handed.next(); // what is not handed over yet would be given back
	answer(first, "AWAY");
	collected->results.next();
	script->probes.next()({.accepted = true});
	Result result = collected->results.next();
	EXPECT_EQ(result.answer.code, "TIMEOUT");
	submit(3);
	submit(4, "illegal");
	EXPECT_EQ(collected->results.next().number, 4u); // and not the third, given back
}

TEST_F(OutletTest, OpensTheBreakerOfOneEndpointOnly)
{
	script->by_topic = true;
	start(10, 1h, 0, false);
	submit(1, "a");
	answer(script->handed.next(), "AWAY");
	collected->results.next();
	submit(2, "a");
	Result given_back = collected->results.next();
	EXPECT_EQ(given_back.verdict, Verdict::untried);
	EXPECT_GT(given_back.delay, 0ms);
	submit(3, "b");
	EXPECT_EQ(script->handed.next().outbox_id, "3");
	EXPECT_GT(outlet->room(), 1u);
}

TEST_F(OutletTest, ProbesAgainIfAProbeGetsNoAnswer)
{
	start(10, 1ms);
	submit(1);
	answer(script->handed.next(), "AWAY");
	script->probes.next();
	script->probes.next();
}

TEST_F(OutletTest, RemembersABoundedNumberOfEndpointsThatAreAway)
{
	const uint64_t count = 1100;

	script->by_topic = true;
	start(count, 1h, 0, false);
	for (uint64_t number = 1; number <= count; number++)
	{
		submit(number, "topic" + std::to_string(number));
		answer(script->handed.next(), "AWAY");
		collected->results.next();
	}
	// The first to be away is forgotten, so a message to it is handed over again.
	for (uint64_t number = count + 1; script->handed.none(); number += 2)
	{
		submit(number, "topic1");
		submit(number + 1, "illegal");
		while (collected->results.next().number != number + 1)
			continue;
	}
}

TEST_F(OutletTest, TimesOutAndIgnoresWhatComesLater)
{
	start(10, 1ms);
	submit(1);
	auto hand = script->handed.next();
	Result result = collected->results.next();
	EXPECT_EQ(result.verdict, Verdict::try_again);
	EXPECT_EQ(result.answer.code, "TIMEOUT");
	answer(hand);
	// A sink that said nothing at all counts as away.
	submit(2);
	EXPECT_EQ(collected->results.next().verdict, Verdict::untried);
	EXPECT_TRUE(collected->results.none());
}

// Some sinks count the time themselves, and it is chance who is the first.
TEST_F(OutletTest, TakesTheTimeoutOfASinkForSilenceToo)
{
	start();
	submit(1);
	submit(2);
	auto first = script->handed.next(), second = script->handed.next();
	answer(second);
	EXPECT_EQ(collected->results.next().verdict, Verdict::accepted);
	answer(first, "TIMEOUT");
	EXPECT_EQ(collected->results.next().verdict, Verdict::try_again);
	submit(3);
	answer(script->handed.next(), "TIMEOUT"); // nothing since the second
	EXPECT_EQ(collected->results.next().verdict, Verdict::try_again);
	submit(4);
	submit(5, "illegal");
	EXPECT_EQ(collected->results.next().verdict, Verdict::untried);
}

TEST_F(OutletTest, HandsOverNothingWhileTheSinkIsBlocked)
{
	start();
	script->answers->blocked(true);
	submit(1);
	submit(2, "illegal");
	EXPECT_EQ(collected->results.next().number, 2u);
	EXPECT_TRUE(script->handed.none());
	script->answers->blocked(false);
	EXPECT_EQ(script->handed.next().outbox_id, "1");
}

TEST_F(OutletTest, DoesNotHandOverWhatHasLostItsLease)
{
	start();
	submit(1, "topic", false);
	EXPECT_EQ(collected->results.next().verdict, Verdict::untried);
	EXPECT_TRUE(script->handed.none());
}

TEST_F(OutletTest, GivesBackWhatIsWithdrawnUnlessItWasHandedOver)
{
	start(1);
	submit(1);
	submit(2);
	submit(3);
	auto first = script->handed.next();
	outlet->withdraw(collected, 2);
	EXPECT_EQ(collected->results.next().number, 2u);
	outlet->withdraw_all(collected);
	EXPECT_EQ(collected->results.next().number, 3u);
	answer(first);
	EXPECT_EQ(collected->results.next().verdict, Verdict::accepted);
}

TEST_F(OutletTest, ReturnsEverythingAtItsEnd)
{
	start(1);
	submit(1);
	submit(2);
	script->handed.next();
	outlet.reset();
	std::map<uint64_t, Verdict> verdicts;
	for (int i = 0; i < 2; i++)
	{
		Result result = collected->results.next();
		verdicts[result.number] = result.verdict;
	}
	EXPECT_EQ(verdicts, (std::map<uint64_t, Verdict>{{1, Verdict::try_again}, {2, Verdict::untried}}));
}

TEST_F(OutletTest, EndsWithoutItsOwnerWaitingForIt)
{
	script->may_end = false;
	start();
	submit(1);
	script->handed.next();
	EXPECT_FALSE(outlet->end());
	EXPECT_FALSE(outlet->end());
	script->may_end = true;
	script->may_end.notify_all();
	EXPECT_EQ(collected->results.next().answer.code, "SINK_STOPPED");
	while (!outlet->end())
		std::this_thread::yield();
}
