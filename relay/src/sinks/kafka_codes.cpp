// Every error code of librdkafka, its class and the reason.
//
// Guarantees: a code of the librdkafka that this is compiled with and that has no row here, or another name, fails the
// build, and the compiler's message names it. The table also has the codes of newer versions, by number, so that no
// line depends on a version.
//
// The check walks over the values of the enum and asks the compiler for the name of each, since a switch without a
// default could not name what an older librdkafka does not declare.
//
// How the classes are chosen: `message` only where no other message would be refused for the same reason. `sink` only
// where every message would fail. What holds for one topic or one partition is `moment`, also if an operator has to act
// (create a topic, grant a right): the queue's backoff gives them time, and a replay the rest.
#include "sinks/kafka_codes.h"

#include <algorithm>
#include <array>
#include <utility>

namespace relay {

namespace {

struct Row {
	int value;
	Code code;
};

// clang-format off
#define ROW(value, name, fault, why) Row{value, {"KAFKA_" #name, Fault::fault, why}}

constexpr const char *of_consumers = "concerns consumers; a producer does not get it";
constexpr const char *of_admins = "concerns administration; a producer does not get it";
constexpr const char *of_transactions = "concerns transactions, which the relay does not use";
constexpr const char *of_brokers = "concerns brokers among themselves; a producer does not get it";
constexpr const char *of_leaders = "the partition's leader changes; librdkafka finds the new one";
constexpr const char *of_logins = "the login is refused, so every message would fail";
constexpr const char *new_producer = "the idempotent producer cannot go on; a new one takes over";

constexpr std::array rows{
	// Within librdkafka.
	ROW(-200, _BEGIN, moment, "marks the begin of the range; not an error"),
	ROW(-199, _BAD_MSG, moment, "a response could not be parsed, which says nothing about the message"),
	ROW(-198, _BAD_COMPRESSION, moment, "the batch could not be compressed"),
	ROW(-197, _DESTROY, moment, "the producer ended before the delivery"),
	ROW(-196, _FAIL, moment, "an unspecific failure"),
	ROW(-195, _TRANSPORT, sink, "the connection to the broker failed"),
	ROW(-194, _CRIT_SYS_RESOURCE, sink, "no producer could be made: threads, memory or files are missing on this machine"),
	ROW(-193, _RESOLVE, sink, "the name of the broker was not found"),
	ROW(-192, _MSG_TIMED_OUT, moment, "not acknowledged in time while the cluster can be reached: a partition without leader, or a slow broker"),
	ROW(-191, _PARTITION_EOF, moment, of_consumers),
	ROW(-190, _UNKNOWN_PARTITION, moment, "the number of partitions is changing"),
	ROW(-189, _FS, moment, of_consumers),
	ROW(-188, _UNKNOWN_TOPIC, moment, "the topic does not exist, until it is created"),
	ROW(-187, _ALL_BROKERS_DOWN, sink, "no broker can be reached"),
	ROW(-186, _INVALID_ARG, message, "the topic's name or a header cannot be sent"),
	ROW(-185, _TIMED_OUT, sink, "a broker accepts connections and does not answer a request for metadata"),
	ROW(-184, _QUEUE_FULL, moment, "a limit of queue.buffering.* in the properties is reached"),
	ROW(-183, _ISR_INSUFF, moment, "too few replicas are in sync"),
	ROW(-182, _NODE_UPDATE, moment, "the address of a broker changed"),
	ROW(-181, _SSL, sink, "TLS is refused: a certificate is wrong or a protocol not supported"),
	ROW(-180, _WAIT_COORD, moment, of_consumers),
	ROW(-179, _UNKNOWN_GROUP, moment, of_consumers),
	ROW(-178, _IN_PROGRESS, moment, "the operation is going on"),
	ROW(-177, _PREV_IN_PROGRESS, moment, "an operation before it is going on"),
	ROW(-176, _EXISTING_SUBSCRIPTION, moment, of_consumers),
	ROW(-175, _ASSIGN_PARTITIONS, moment, of_consumers),
	ROW(-174, _REVOKE_PARTITIONS, moment, of_consumers),
	ROW(-173, _CONFLICT, moment, "a conflicting use of the producer"),
	ROW(-172, _STATE, moment, "the producer is in a wrong state"),
	ROW(-171, _UNKNOWN_PROTOCOL, moment, of_consumers),
	ROW(-170, _NOT_IMPLEMENTED, sink, "this librdkafka was built without something that the properties need"),
	ROW(-169, _AUTHENTICATION, sink, of_logins),
	ROW(-168, _NO_OFFSET, moment, of_consumers),
	ROW(-167, _OUTDATED, moment, "what was known of the cluster is outdated"),
	ROW(-166, _TIMED_OUT_QUEUE, moment, "the request timed out before it was sent"),
	ROW(-165, _UNSUPPORTED_FEATURE, sink, "the broker is too old for an idempotent producer or for headers"),
	ROW(-164, _WAIT_CACHE, moment, "metadata is being read"),
	ROW(-163, _INTR, moment, "the operation was interrupted"),
	ROW(-162, _KEY_SERIALIZATION, message, "the key cannot be written"),
	ROW(-161, _VALUE_SERIALIZATION, message, "the body cannot be written"),
	ROW(-160, _KEY_DESERIALIZATION, moment, of_consumers),
	ROW(-159, _VALUE_DESERIALIZATION, moment, of_consumers),
	ROW(-158, _PARTIAL, moment, "a response was incomplete"),
	ROW(-157, _READ_ONLY, moment, "an object of librdkafka may not be changed"),
	ROW(-156, _NOENT, moment, "an object of librdkafka was not found"),
	ROW(-155, _UNDERFLOW, moment, "a response was too short"),
	ROW(-154, _INVALID_TYPE, moment, "an object of librdkafka has a wrong type"),
	ROW(-153, _RETRY, moment, "the operation is to be tried again"),
	ROW(-152, _PURGE_QUEUE, moment, "withdrawn from an ended producer before it was sent"),
	ROW(-151, _PURGE_INFLIGHT, moment, "withdrawn from an ended producer; the broker may have it"),
	ROW(-150, _FATAL, moment, new_producer),
	ROW(-149, _INCONSISTENT, moment, "a batch to repeat was not the same any more"),
	ROW(-148, _GAPLESS_GUARANTEE, moment, new_producer),
	ROW(-147, _MAX_POLL_EXCEEDED, moment, of_consumers),
	ROW(-146, _UNKNOWN_BROKER, moment, "the broker is not known any more"),
	ROW(-145, _NOT_CONFIGURED, moment, of_transactions),
	ROW(-144, _FENCED, moment, new_producer),
	ROW(-143, _APPLICATION, moment, "an error that an application makes by itself; the relay makes none"),
	ROW(-142, _ASSIGNMENT_LOST, moment, of_consumers),
	ROW(-141, _NOOP, moment, "nothing was done"),
	ROW(-140, _AUTO_OFFSET_RESET, moment, of_consumers),
	ROW(-139, _LOG_TRUNCATION, moment, of_consumers),
	ROW(-138, _INVALID_DIFFERENT_RECORD, moment, "another message of the batch was refused"),
	ROW(-137, _DESTROY_BROKER, moment, "a broker left the cluster; librdkafka turns to the others"),
	ROW(-100, _END, moment, "marks the end of the range; not an error"),

	// From a broker.
	ROW(-1, UNKNOWN, moment, "the broker failed without a reason that the protocol knows"),
	ROW(0, NO_ERROR, moment, "not an error"),
	ROW(1, OFFSET_OUT_OF_RANGE, moment, of_consumers),
	ROW(2, INVALID_MSG, moment, "the checksum is wrong: damaged on the way"),
	ROW(3, UNKNOWN_TOPIC_OR_PART, moment, "the topic does not exist, until it is created"),
	ROW(4, INVALID_MSG_SIZE, message, "the size of the message is invalid"),
	ROW(5, LEADER_NOT_AVAILABLE, moment, of_leaders),
	ROW(6, NOT_LEADER_FOR_PARTITION, moment, of_leaders),
	ROW(7, REQUEST_TIMED_OUT, moment, "the replicas did not acknowledge in time"),
	ROW(8, BROKER_NOT_AVAILABLE, moment, of_leaders),
	ROW(9, REPLICA_NOT_AVAILABLE, moment, of_leaders),
	ROW(10, MSG_SIZE_TOO_LARGE, message, "larger than message.max.bytes of the properties, or than max.message.bytes of the topic"),
	ROW(11, STALE_CTRL_EPOCH, moment, of_brokers),
	ROW(12, OFFSET_METADATA_TOO_LARGE, moment, of_consumers),
	ROW(13, NETWORK_EXCEPTION, moment, "the broker lost a connection within the cluster"),
	ROW(14, COORDINATOR_LOAD_IN_PROGRESS, moment, "a coordinator is starting"),
	ROW(15, COORDINATOR_NOT_AVAILABLE, moment, "a coordinator is starting"),
	ROW(16, NOT_COORDINATOR, moment, "a coordinator moved"),
	ROW(17, TOPIC_EXCEPTION, message, "the name of the topic is illegal, or the topic is internal to Kafka"),
	ROW(18, RECORD_LIST_TOO_LARGE, message, "larger than a segment of the topic"),
	ROW(19, NOT_ENOUGH_REPLICAS, moment, "fewer replicas are in sync than min.insync.replicas"),
	ROW(20, NOT_ENOUGH_REPLICAS_AFTER_APPEND, moment, "written, but to fewer replicas than min.insync.replicas"),
	ROW(21, INVALID_REQUIRED_ACKS, sink, "acks in the properties is invalid, so every message would fail"),
	ROW(22, ILLEGAL_GENERATION, moment, of_consumers),
	ROW(23, INCONSISTENT_GROUP_PROTOCOL, moment, of_consumers),
	ROW(24, INVALID_GROUP_ID, moment, of_consumers),
	ROW(25, UNKNOWN_MEMBER_ID, moment, of_consumers),
	ROW(26, INVALID_SESSION_TIMEOUT, moment, of_consumers),
	ROW(27, REBALANCE_IN_PROGRESS, moment, of_consumers),
	ROW(28, INVALID_COMMIT_OFFSET_SIZE, moment, of_consumers),
	ROW(29, TOPIC_AUTHORIZATION_FAILED, moment, "the right to write to this topic is missing, until it is granted"),
	ROW(30, GROUP_AUTHORIZATION_FAILED, moment, of_consumers),
	ROW(31, CLUSTER_AUTHORIZATION_FAILED, sink, "the right IDEMPOTENT_WRITE is missing, so every message would fail"),
	ROW(32, INVALID_TIMESTAMP, moment, "the clocks of relay and broker differ by more than the topic allows"),
	ROW(33, UNSUPPORTED_SASL_MECHANISM, sink, of_logins),
	ROW(34, ILLEGAL_SASL_STATE, sink, of_logins),
	ROW(35, UNSUPPORTED_VERSION, sink, "the broker is too old or too new for this librdkafka"),
	ROW(36, TOPIC_ALREADY_EXISTS, moment, of_admins),
	ROW(37, INVALID_PARTITIONS, moment, of_admins),
	ROW(38, INVALID_REPLICATION_FACTOR, moment, "the topic cannot be created by itself: fewer brokers than its replicas"),
	ROW(39, INVALID_REPLICA_ASSIGNMENT, moment, of_admins),
	ROW(40, INVALID_CONFIG, moment, of_admins),
	ROW(41, NOT_CONTROLLER, moment, of_admins),
	ROW(42, INVALID_REQUEST, moment, "the broker could not read a request, which concerns a batch as a whole"),
	ROW(43, UNSUPPORTED_FOR_MESSAGE_FORMAT, moment, "the topic has a format before Kafka 0.11, without headers"),
	ROW(44, POLICY_VIOLATION, moment, "a rule of the cluster forbids it, until it is changed"),
	ROW(45, OUT_OF_ORDER_SEQUENCE_NUMBER, moment, new_producer),
	ROW(46, DUPLICATE_SEQUENCE_NUMBER, moment, "the broker has it already, but cannot say at which offset"),
	ROW(47, INVALID_PRODUCER_EPOCH, moment, new_producer),
	ROW(48, INVALID_TXN_STATE, moment, of_transactions),
	ROW(49, INVALID_PRODUCER_ID_MAPPING, moment, new_producer),
	ROW(50, INVALID_TRANSACTION_TIMEOUT, moment, of_transactions),
	ROW(51, CONCURRENT_TRANSACTIONS, moment, of_transactions),
	ROW(52, TRANSACTION_COORDINATOR_FENCED, moment, of_transactions),
	ROW(53, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, moment, of_transactions),
	ROW(54, SECURITY_DISABLED, sink, of_logins),
	ROW(55, OPERATION_NOT_ATTEMPTED, moment, "the broker stopped before this part of the request"),
	ROW(56, KAFKA_STORAGE_ERROR, moment, "the disk of the partition's leader failed; another one takes over"),
	ROW(57, LOG_DIR_NOT_FOUND, moment, of_admins),
	ROW(58, SASL_AUTHENTICATION_FAILED, sink, of_logins),
	ROW(59, UNKNOWN_PRODUCER_ID, moment, new_producer),
	ROW(60, REASSIGNMENT_IN_PROGRESS, moment, of_admins),
	ROW(61, DELEGATION_TOKEN_AUTH_DISABLED, sink, of_logins),
	ROW(62, DELEGATION_TOKEN_NOT_FOUND, sink, of_logins),
	ROW(63, DELEGATION_TOKEN_OWNER_MISMATCH, sink, of_logins),
	ROW(64, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, sink, of_logins),
	ROW(65, DELEGATION_TOKEN_AUTHORIZATION_FAILED, sink, of_logins),
	ROW(66, DELEGATION_TOKEN_EXPIRED, sink, of_logins),
	ROW(67, INVALID_PRINCIPAL_TYPE, sink, of_logins),
	ROW(68, NON_EMPTY_GROUP, moment, of_consumers),
	ROW(69, GROUP_ID_NOT_FOUND, moment, of_consumers),
	ROW(70, FETCH_SESSION_ID_NOT_FOUND, moment, of_consumers),
	ROW(71, INVALID_FETCH_SESSION_EPOCH, moment, of_consumers),
	ROW(72, LISTENER_NOT_FOUND, moment, "the partition's leader has no address for clients of this listener, until it is back"),
	ROW(73, TOPIC_DELETION_DISABLED, moment, of_admins),
	ROW(74, FENCED_LEADER_EPOCH, moment, of_leaders),
	ROW(75, UNKNOWN_LEADER_EPOCH, moment, of_leaders),
	ROW(76, UNSUPPORTED_COMPRESSION_TYPE, sink, "the broker does not know compression.type of the properties, so every message would fail"),
	ROW(77, STALE_BROKER_EPOCH, moment, of_brokers),
	ROW(78, OFFSET_NOT_AVAILABLE, moment, of_consumers),
	ROW(79, MEMBER_ID_REQUIRED, moment, of_consumers),
	ROW(80, PREFERRED_LEADER_NOT_AVAILABLE, moment, of_admins),
	ROW(81, GROUP_MAX_SIZE_REACHED, moment, of_consumers),
	ROW(82, FENCED_INSTANCE_ID, moment, of_consumers),
	ROW(83, ELIGIBLE_LEADERS_NOT_AVAILABLE, moment, of_admins),
	ROW(84, ELECTION_NOT_NEEDED, moment, of_admins),
	ROW(85, NO_REASSIGNMENT_IN_PROGRESS, moment, of_admins),
	ROW(86, GROUP_SUBSCRIBED_TO_TOPIC, moment, of_consumers),
	ROW(87, INVALID_RECORD, message, "the broker's check refuses it: a compacted topic and no key, or a schema"),
	ROW(88, UNSTABLE_OFFSET_COMMIT, moment, of_consumers),
	ROW(89, THROTTLING_QUOTA_EXCEEDED, moment, "a quota is used up"),
	ROW(90, PRODUCER_FENCED, moment, new_producer),
	ROW(91, RESOURCE_NOT_FOUND, moment, of_admins),
	ROW(92, DUPLICATE_RESOURCE, moment, of_admins),
	ROW(93, UNACCEPTABLE_CREDENTIAL, moment, of_admins),
	ROW(94, INCONSISTENT_VOTER_SET, moment, of_brokers),
	ROW(95, INVALID_UPDATE_VERSION, moment, of_admins),
	ROW(96, FEATURE_UPDATE_FAILED, moment, of_admins),
	ROW(97, PRINCIPAL_DESERIALIZATION_FAILURE, moment, of_brokers),
	ROW(100, UNKNOWN_TOPIC_ID, moment, "the topic was deleted and made again; metadata is read again"),
	ROW(110, FENCED_MEMBER_EPOCH, moment, of_consumers),
	ROW(111, UNRELEASED_INSTANCE_ID, moment, of_consumers),
	ROW(112, UNSUPPORTED_ASSIGNOR, moment, of_consumers),
	ROW(113, STALE_MEMBER_EPOCH, moment, of_consumers),
	ROW(117, UNKNOWN_SUBSCRIPTION_ID, moment, "concerns telemetry of clients, not messages"),
	ROW(118, TELEMETRY_TOO_LARGE, moment, "concerns telemetry of clients, not messages"),
	ROW(129, REBOOTSTRAP_REQUIRED, moment, "the client has to start with its list of brokers again, which librdkafka does"),
};
#undef ROW
// clang-format on

// "... [with rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR__FAIL; ...]"; for a value without a name a cast.
template <rd_kafka_resp_err_t error>
consteval std::string_view
enumerator()
{
	constexpr std::string_view prefix = "RD_KAFKA_RESP_ERR_";
	std::string_view signature = __PRETTY_FUNCTION__;
	size_t begin = signature.find("error = ") + 8;
	std::string_view name = signature.substr(begin, signature.find_first_of(";]", begin) - begin);
	return name.starts_with(prefix) ? name.substr(prefix.size()) : std::string_view{};
}
static_assert(enumerator<RD_KAFKA_RESP_ERR__FAIL>() == "_FAIL" &&
			  enumerator<RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE>() == "MSG_SIZE_TOO_LARGE");

constexpr const Row *
row(int value)
{
	const auto *found = std::find_if(rows.begin(), rows.end(), [value](const Row &row) { return row.value == value; });
	return found == rows.end() ? nullptr : found;
}

template <rd_kafka_resp_err_t error>
struct HasRow {
	static constexpr std::string_view name = enumerator<error>();
	static_assert(name.empty() || (row(error) && row(error)->code.code.substr(6) == name),
				  "an error code of librdkafka is missing in kafka_codes.cpp, or has another name there");
};

template <int... offset>
consteval size_t
check(std::integer_sequence<int, offset...>)
{
	return (sizeof(HasRow<static_cast<rd_kafka_resp_err_t>(RD_KAFKA_RESP_ERR__BEGIN + offset)>) + ...);
}
static_assert(check(std::make_integer_sequence<int, RD_KAFKA_RESP_ERR_END_ALL - RD_KAFKA_RESP_ERR__BEGIN>{}) > 0);

constexpr auto codes = [] {
	std::array<Code, rows.size()> all{};
	std::transform(rows.begin(), rows.end(), all.begin(), [](const Row &row) { return row.code; });
	return all;
}();

} // namespace

std::span<const Code>
kafka_codes()
{
	return codes;
}

std::string
kafka_code(rd_kafka_resp_err_t error)
{
	const Row *known = row(error);
	return known ? std::string(known->code.code) : std::string("KAFKA_") + rd_kafka_err2name(error);
}

Fault
kafka_fault(rd_kafka_resp_err_t error)
{
	const Row *known = row(error);
	return known ? known->code.fault : Fault::moment;
}

} // namespace relay
