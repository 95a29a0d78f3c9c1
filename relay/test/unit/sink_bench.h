// A sink on the bench: made of TOML, given deliveries, its answers kept.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "flow/mailbox.h"
#include "message.h"
#include "sinks/registry.h"

namespace relay::test {

class SinkBench final : public Answers {
public:
	SinkBench(const SinkKind &kind, const std::string &toml,
			  std::chrono::milliseconds timeout = std::chrono::minutes(10))
		: table(toml::parse(toml))
	{
		Section section(table, "sink.test");
		SinkSettings settings = kind.defaults;
		settings.name = "test";
		settings.type = kind.type;
		settings.timeout = timeout;
		my_sink = kind.read(section, settings)();
		section.done();
		my_sink->start(*this);
	}

	Sink &sink() { return *my_sink; }
	void stop() { my_sink.reset(); }

	static std::unique_ptr<Delivery> delivery(const std::string &topic, const std::string &body = "{}",
											  const std::string &type = "application/json")
	{
		auto result = std::make_unique<Delivery>();
		result->message = message();
		result->to.topic = topic;
		result->body = body;
		result->content_type = type;
		return result;
	}

	// The ticket.
	uint64_t deliver(std::unique_ptr<Delivery> delivery)
	{
		uint64_t ticket = delivery->ticket = ++last;
		std::vector<std::unique_ptr<Delivery>> one;
		one.push_back(std::move(delivery));
		my_sink->deliver(std::move(one));
		return ticket;
	}
	uint64_t deliver(const std::string &topic, const std::string &body = "{}")
	{
		return deliver(delivery(topic, body));
	}

	// Waits for it, as an outlet does.
	Answer answer_to(uint64_t ticket)
	{
		while (!answered(ticket))
			my_sink->wait(box.descriptor(), std::chrono::seconds(1));
		return answers[ticket];
	}
	Answer send(const std::string &topic) { return answer_to(deliver(topic)); }

	Answer probe(const std::string &endpoint)
	{
		uint64_t ticket = ++last;
		my_sink->probe(endpoint, [this, ticket](Answer given) { answer(ticket, std::move(given)); });
		return answer_to(ticket);
	}

	// More than one answer to a delivery.
	bool answered_twice()
	{
		take();
		return twice;
	}
	bool answered(uint64_t ticket)
	{
		take();
		return answers.contains(ticket);
	}

	using Answers::answer;
	void answer(std::vector<Answered> answered) override
	{
		for (Answered &one : answered)
			box.put(std::move(one));
		box.flush();
	}
	void blocked(bool) override {}

private:
	void take()
	{
		box.take(taken);
		for (Answered &one : taken)
		{
			twice = twice || answers.contains(one.ticket);
			answers[one.ticket] = std::move(one.answer);
		}
	}

	toml::table table;
	Mailbox<Answered> box;
	std::vector<Answered> taken;
	std::map<uint64_t, Answer> answers;
	bool twice = false;
	uint64_t last = 0;
	std::unique_ptr<Sink> my_sink; // ends first
};

} // namespace relay::test
