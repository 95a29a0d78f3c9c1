// The memory of what went wrong.
#include "sinks/rabbitmq_doubts.h"

#include "sinks/rabbitmq_library.h"

namespace relay::rabbitmq {

namespace {

constexpr size_t most_suspects = 50'000, most_addresses = 10'000;
constexpr std::chrono::seconds rest{1}; // of an address that was refused

std::string
address(const Delivery &delivery)
{
	return delivery.to.exchange + '\0' + delivery.to.topic;
}

std::string
name(const Delivery &delivery)
{
	return delivery.message.event_id + '\0' + delivery.message.outbox_id;
}

} // namespace

Care
Doubts::care(const Delivery &delivery, size_t size) const
{
	if (!suspects.empty())
		if (auto found = suspects.find(name(delivery)); found != suspects.end())
			return found->second;
	if (size >= refused_size || !exchanges.contains(delivery.to.exchange))
		return Care::channel;
	return !addresses.empty() && addresses.contains(address(delivery)) ? Care::channel : Care::none;
}

const Failure *
Doubts::refused(const Delivery &delivery, Clock::time_point now)
{
	if (addresses.empty())
		return nullptr;
	auto found = addresses.find(address(delivery));
	return found != addresses.end() && now < found->second.until ? &found->second.failure : nullptr;
}

void
Doubts::suspect(const Delivery &delivery, Care care)
{
	std::string key = name(delivery);
	release(key);
	suspects.emplace(key, care);
	for_connection += care == Care::connection;
	suspects_by_age.push_back(std::move(key));
	while (suspects_by_age.size() > most_suspects)
	{
		release(suspects_by_age.front());
		suspects_by_age.pop_front();
	}
}

void
Doubts::release(const std::string &name)
{
	auto found = suspects.find(name);
	if (found == suspects.end())
		return;
	for_connection -= found->second == Care::connection;
	suspects.erase(found);
}

void
Doubts::blame(const Delivery &delivery, size_t size, int reply_code, const Failure &failure, Clock::time_point now)
{
	switch (reply_code)
	{
		case AMQP_NOT_FOUND:
		case AMQP_ACCESS_REFUSED:
			exchanges.erase(delivery.to.exchange);
			if (addresses.size() >= most_addresses)
				addresses.clear();
			addresses.insert_or_assign(address(delivery), Refusal{failure, now + rest});
			break;
		case AMQP_PRECONDITION_FAILED:
		case AMQP_CONTENT_TOO_LARGE:
			refused_size = std::min(refused_size, size);
			break;
		default:
			suspect(delivery, Care::channel);
	}
}

void
Doubts::clear(const Delivery &delivery, size_t size)
{
	if (!suspects.empty())
		release(name(delivery));
	if (suspects.empty())
		suspects_by_age.clear();
	if (!addresses.empty())
		addresses.erase(address(delivery));
	if (size >= refused_size) // it was not the size
		refused_size = std::numeric_limits<size_t>::max();
	if (!exchanges.contains(delivery.to.exchange))
		exchanges.insert(delivery.to.exchange);
}

} // namespace relay::rabbitmq
