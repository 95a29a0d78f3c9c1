// The codes of the sink nats: each with its class, and why.
//
// Guarantees: every status of the library and every error code of JetStream that its header has, has a row; a unit test
// compares the table with the header. The table is the same with each release of the library. Most of JetStream's are
// about streams and consumers and never answer a publish; they are "try again", since an operator may be at work.
#include "sinks/nats_codes.h"

#include <algorithm>
#include <array>

namespace relay::nats {

namespace {

struct Row {
	int number;
	Code code;
};

#define ROW(name, fault, why) \
	{ \
		name, \
		{ \
#name, Fault::fault, why \
		} \
	}
// Not in the headers of all releases that this is built with.
#define NEWER(number, name, fault, why) \
	{ \
		number, \
		{ \
#name, Fault::fault, why \
		} \
	}

constexpr Row statuses[] = {
	ROW(NATS_ERR, moment, "the library gives no reason"),
	ROW(NATS_PROTOCOL_ERROR, sink, "what came is not the protocol of NATS"),
	ROW(NATS_IO_ERROR, sink, "the connection is lost"),
	ROW(NATS_LINE_TOO_LONG, sink, "what came is not the protocol of NATS"),
	ROW(NATS_CONNECTION_CLOSED, sink, "the connection is closed"),
	ROW(NATS_NO_SERVER, sink, "no server can be reached"),
	ROW(NATS_STALE_CONNECTION, sink, "the server does not answer pings"),
	ROW(NATS_SECURE_CONNECTION_WANTED, sink, "the server does not speak TLS"),
	ROW(NATS_SECURE_CONNECTION_REQUIRED, sink, "the server speaks TLS only"),
	ROW(NATS_CONNECTION_DISCONNECTED, sink, "the connection is lost"),
	ROW(NATS_CONNECTION_AUTH_FAILED, sink, "the login is refused"),
	ROW(NATS_NOT_PERMITTED, moment, "the user may not publish to this subject; it may be granted"),
	ROW(NATS_NOT_FOUND, moment, "something is not there; it may come"),
	ROW(NATS_ADDRESS_MISSING, sink, "a URL has no host"),
	ROW(NATS_INVALID_SUBJECT, message, "the subject is not one"),
	ROW(NATS_INVALID_ARG, message, "the library does not take the message"),
	ROW(NATS_INVALID_SUBSCRIPTION, sink, "the subscription for acknowledgements is gone"),
	ROW(NATS_INVALID_TIMEOUT, sink, "a setting is wrong"),
	ROW(NATS_ILLEGAL_STATE, sink, "the connection is in a wrong state"),
	ROW(NATS_SLOW_CONSUMER, sink, "acknowledgements came faster than they were read"),
	ROW(NATS_MAX_PAYLOAD, message, "the message is larger than the server accepts"),
	ROW(NATS_MAX_DELIVERED_MSGS, sink, "the subscription for acknowledgements is gone"),
	ROW(NATS_INSUFFICIENT_BUFFER, sink, "the buffer for the time without a server is full"),
	ROW(NATS_NO_MEMORY, sink, "no memory is left"),
	ROW(NATS_SYS_ERROR, sink, "the operating system refuses something"),
	ROW(NATS_TIMEOUT, sink, "the server accepts connections, but does not answer"),
	ROW(NATS_FAILED_TO_INITIALIZE, sink, "the library could not be set up"),
	ROW(NATS_NOT_INITIALIZED, sink, "the library is not set up"),
	ROW(NATS_SSL_ERROR, sink, "TLS failed: a certificate is not trusted, is for another host, or cannot be read"),
	ROW(NATS_NO_SERVER_SUPPORT, sink, "the server is too old for headers or JetStream"),
	ROW(NATS_NOT_YET_CONNECTED, sink, "there is no connection yet"),
	ROW(NATS_DRAINING, sink, "the connection is being closed"),
	ROW(NATS_INVALID_QUEUE_NAME, sink, "a setting is wrong"),
	ROW(NATS_NO_RESPONDERS, moment, "no stream takes this subject, or JetStream is off; a stream may be created"),
	ROW(NATS_MISMATCH, sink, "the library met what only consumers meet"),
	ROW(NATS_MISSED_HEARTBEAT, sink, "the library met what only consumers meet"),
	NEWER(NATS_MISSED_HEARTBEAT + 1, NATS_LIMIT_REACHED, sink, "the library met what only consumers meet"),
};

constexpr Row errors[] = {
	ROW(JSAccountResourcesExceededErr, moment, "resource limits exceeded for account"),
	ROW(JSBadRequestErr, message, "bad request"),
	ROW(JSClusterIncompleteErr, moment, "incomplete results"),
	ROW(JSClusterNoPeersErr, moment, "no suitable peers for placement"),
	ROW(JSClusterNotActiveErr, sink, "JetStream not in clustered mode"),
	ROW(JSClusterNotAssignedErr, moment, "JetStream cluster not assigned to this server"),
	ROW(JSClusterNotAvailErr, sink, "JetStream system temporarily unavailable"),
	ROW(JSClusterNotLeaderErr, moment, "JetStream cluster can not handle request"),
	ROW(JSClusterRequiredErr, sink, "JetStream clustering support required"),
	ROW(JSClusterTagsErr, moment, "tags placement not supported for operation"),
	ROW(JSConsumerCreateErr, moment, "general consumer creation failure string"),
	ROW(JSConsumerNameExistErr, moment, "consumer name already in use"),
	ROW(JSConsumerNotFoundErr, moment, "consumer not found"),
	ROW(JSSnapshotDeliverSubjectInvalidErr, moment, "deliver subject not valid"),
	ROW(JSConsumerDurableNameNotInSubjectErr, moment,
		"consumer expected to be durable but no durable name set in subject"),
	ROW(JSConsumerDurableNameNotMatchSubjectErr, moment,
		"consumer name in subject does not match durable name in request"),
	ROW(JSConsumerDurableNameNotSetErr, moment, "consumer expected to be durable but a durable name was not set"),
	ROW(JSConsumerEphemeralWithDurableInSubjectErr, moment,
		"consumer expected to be ephemeral but detected a durable name set in subject"),
	ROW(JSConsumerEphemeralWithDurableNameErr, moment,
		"consumer expected to be ephemeral but a durable name was set in request"),
	ROW(JSStreamExternalApiOverlapErr, moment, "stream external api prefix must not overlap"),
	ROW(JSStreamExternalDelPrefixOverlapsErr, moment, "stream external delivery prefix overlaps with stream subject"),
	ROW(JSInsufficientResourcesErr, moment, "insufficient resources"),
	ROW(JSStreamInvalidExternalDeliverySubjErr, moment, "stream external delivery prefix must not contain wildcards"),
	ROW(JSInvalidJSONErr, message, "invalid JSON"),
	ROW(JSMaximumConsumersLimitErr, moment, "maximum consumers exceeds account limit"),
	ROW(JSMaximumStreamsLimitErr, moment, "maximum number of streams reached"),
	ROW(JSMemoryResourcesExceededErr, moment, "insufficient memory resources available"),
	ROW(JSMirrorConsumerSetupFailedErr, moment, "generic mirror consumer setup failure"),
	ROW(JSMirrorMaxMessageSizeTooBigErr, moment, "stream mirror must have max message size >= source"),
	ROW(JSMirrorWithSourcesErr, moment, "stream mirrors can not also contain other sources"),
	ROW(JSMirrorWithStartSeqAndTimeErr, moment, "stream mirrors can not have both start seq and start time configured"),
	ROW(JSMirrorWithSubjectFiltersErr, moment, "stream mirrors can not contain filtered subjects"),
	ROW(JSMirrorWithSubjectsErr, moment, "stream mirrors can not also contain subjects"),
	ROW(JSNoAccountErr, sink, "account not found"),
	ROW(JSClusterUnSupportFeatureErr, moment, "not currently supported in clustered mode"),
	ROW(JSNoMessageFoundErr, moment, "no message found"),
	ROW(JSNotEmptyRequestErr, moment, "expected an empty request payload"),
	ROW(JSNotEnabledForAccountErr, sink, "JetStream not enabled for account"),
	ROW(JSClusterPeerNotMemberErr, moment, "peer not a member"),
	ROW(JSRaftGeneralErr, moment, "general RAFT error"),
	ROW(JSRestoreSubscribeFailedErr, moment, "JetStream unable to subscribe to restore snapshot"),
	ROW(JSSequenceNotFoundErr, moment, "sequence not found"),
	ROW(JSClusterServerNotMemberErr, sink, "server is not a member of the cluster"),
	ROW(JSSourceConsumerSetupFailedErr, moment, "general source consumer setup failure"),
	ROW(JSSourceMaxMessageSizeTooBigErr, moment, "stream source must have max message size >= target"),
	ROW(JSStorageResourcesExceededErr, moment, "insufficient storage resources available"),
	ROW(JSStreamAssignmentErr, moment, "generic stream assignment error"),
	ROW(JSStreamCreateErr, moment, "generic stream creation error"),
	ROW(JSStreamDeleteErr, moment, "general stream deletion error"),
	ROW(JSStreamGeneralError, moment, "general stream failure"),
	ROW(JSStreamInvalidConfig, moment, "stream configuration validation error"),
	ROW(JSStreamLimitsErr, moment, "general stream limits exceeded error"),
	ROW(JSStreamMessageExceedsMaximumErr, message, "message size exceeds maximum allowed"),
	ROW(JSStreamMirrorNotUpdatableErr, moment, "mirror configuration can not be updated"),
	ROW(JSStreamMismatchErr, moment, "stream name in subject does not match request"),
	ROW(JSStreamMsgDeleteFailed, moment, "generic message deletion failure error"),
	ROW(JSStreamNameExistErr, moment, "stream name already in use"),
	ROW(JSStreamNotFoundErr, moment, "stream not found"),
	ROW(JSStreamNotMatchErr, message, "expected stream does not match"),
	ROW(JSStreamReplicasNotUpdatableErr, moment, "replicas configuration can not be updated"),
	ROW(JSStreamRestoreErr, moment, "restore failed"),
	ROW(JSStreamSequenceNotMatchErr, message, "expected stream sequence does not match"),
	ROW(JSStreamSnapshotErr, moment, "snapshot failed"),
	ROW(JSStreamSubjectOverlapErr, moment, "subjects overlap with an existing stream"),
	ROW(JSStreamTemplateCreateErr, moment, "generic template creation failed"),
	ROW(JSStreamTemplateDeleteErr, moment, "generic stream template deletion failed error"),
	ROW(JSStreamTemplateNotFoundErr, moment, "template not found"),
	ROW(JSStreamUpdateErr, moment, "generic stream update error"),
	ROW(JSStreamWrongLastMsgIDErr, message, "wrong last msg ID"),
	ROW(JSStreamWrongLastSequenceErr, message, "wrong last sequence"),
	ROW(JSTempStorageFailedErr, moment, "JetStream unable to open temp storage for restore"),
	ROW(JSTemplateNameNotMatchSubjectErr, moment, "template name in subject does not match request"),
	ROW(JSStreamReplicasNotSupportedErr, moment, "replicas > 1 not supported in non-clustered mode"),
	ROW(JSPeerRemapErr, moment, "peer remap failed"),
	ROW(JSNotEnabledErr, sink, "JetStream not enabled"),
	ROW(JSStreamStoreFailedErr, moment, "generic error when storing a message failed"),
	ROW(JSConsumerConfigRequiredErr, moment, "consumer config required"),
	ROW(JSConsumerDeliverToWildcardsErr, moment, "consumer deliver subject has wildcards"),
	ROW(JSConsumerPushMaxWaitingErr, moment, "consumer in push mode can not set max waiting"),
	ROW(JSConsumerDeliverCycleErr, moment, "consumer deliver subject forms a cycle"),
	ROW(JSConsumerMaxPendingAckPolicyRequiredErr, moment, "consumer requires ack policy for max ack pending"),
	ROW(JSConsumerSmallHeartbeatErr, moment, "consumer idle heartbeat needs to be >= 100ms"),
	ROW(JSConsumerPullRequiresAckErr, moment, "consumer in pull mode requires explicit ack policy"),
	ROW(JSConsumerPullNotDurableErr, moment, "consumer in pull mode requires a durable name"),
	ROW(JSConsumerPullWithRateLimitErr, moment, "consumer in pull mode can not have rate limit set"),
	ROW(JSConsumerMaxWaitingNegativeErr, moment, "consumer max waiting needs to be positive"),
	ROW(JSConsumerHBRequiresPushErr, moment, "consumer idle heartbeat requires a push based consumer"),
	ROW(JSConsumerFCRequiresPushErr, moment, "consumer flow control requires a push based consumer"),
	ROW(JSConsumerDirectRequiresPushErr, moment, "consumer direct requires a push based consumer"),
	ROW(JSConsumerDirectRequiresEphemeralErr, moment, "consumer direct requires an ephemeral consumer"),
	ROW(JSConsumerOnMappedErr, moment, "consumer direct on a mapped consumer"),
	ROW(JSConsumerFilterNotSubsetErr, moment, "consumer filter subject is not a valid subset of the interest subjects"),
	ROW(JSConsumerInvalidPolicyErr, moment, "generic delivery policy error"),
	ROW(JSConsumerInvalidSamplingErr, moment, "failed to parse consumer sampling configuration"),
	ROW(JSStreamInvalidErr, moment, "stream not valid"),
	ROW(JSConsumerWQRequiresExplicitAckErr, moment, "workqueue stream requires explicit ack"),
	ROW(JSConsumerWQMultipleUnfilteredErr, moment, "multiple non-filtered consumers not allowed on workqueue stream"),
	ROW(JSConsumerWQConsumerNotUniqueErr, moment, "filtered consumer not unique on workqueue stream"),
	ROW(JSConsumerWQConsumerNotDeliverAllErr, moment, "consumer must be deliver all on workqueue stream"),
	ROW(JSConsumerNameTooLongErr, moment, "consumer name is too long"),
	ROW(JSConsumerBadDurableNameErr, moment, "durable name can not contain '.', '*', '>'"),
	ROW(JSConsumerStoreFailedErr, moment, "error creating store for consumer"),
	ROW(JSConsumerExistingActiveErr, moment, "consumer already exists and is still active"),
	ROW(JSConsumerReplacementWithDifferentNameErr, moment, "consumer replacement durable config not the same"),
	ROW(JSConsumerDescriptionTooLongErr, moment, "consumer description is too long"),
	ROW(JSConsumerWithFlowControlNeedsHeartbeatsErr, moment, "consumer with flow control also needs heartbeats"),
	ROW(JSStreamSealedErr, moment, "invalid operation on sealed stream"),
	ROW(JSStreamPurgeFailedErr, moment, "generic stream purge failure"),
	ROW(JSStreamRollupFailedErr, message, "generic stream rollup failure"),
	ROW(JSConsumerInvalidDeliverSubjectErr, moment, "invalid push consumer deliver subject"),
	ROW(JSStreamMaxBytesRequiredErr, moment, "account requires a stream config to have max bytes set"),
	ROW(JSConsumerMaxRequestBatchNegativeErr, moment, "consumer max request batch needs to be > 0"),
	ROW(JSConsumerMaxRequestExpiresToSmallErr, moment, "consumer max request expires needs to be > 1ms"),
	ROW(JSConsumerMaxDeliverBackoffErr, moment, "max deliver is required to be > length of backoff values"),
	ROW(JSStreamInfoMaxSubjectsErr, moment, "subject details would exceed maximum allowed"),
	ROW(JSStreamOfflineErr, moment, "stream is offline"),
	ROW(JSConsumerOfflineErr, moment, "consumer is offline"),
	ROW(JSNoLimitsErr, moment, "no JetStream default or applicable tiered limit present"),
	ROW(JSConsumerMaxPendingAckExcessErr, moment, "consumer max ack pending exceeds system limit"),
	ROW(JSStreamMaxStreamBytesExceededErr, moment, "stream max bytes exceeds account limit max stream bytes"),
	ROW(JSStreamMoveAndScaleErr, moment, "cannot move and scale a stream in a single update"),
	ROW(JSStreamMoveInProgressErr, moment, "stream move already in progress"),
	ROW(JSConsumerMaxRequestBatchExceededErr, moment, "consumer max request batch exceeds server limit"),
	ROW(JSConsumerReplicasExceedsStreamErr, moment, "consumer config replica count exceeds parent stream"),
	NEWER(10127, JSConsumerNameContainsPathSeparatorsErr, moment, "consumer name can not contain path separators"),
	NEWER(10128, JSStreamNameContainsPathSeparatorsErr, moment, "stream name can not contain path separators"),
	NEWER(10129, JSStreamMoveNotInProgressErr, moment, "stream move not in progress"),
	NEWER(10130, JSStreamNameExistRestoreFailedErr, moment, "stream name already in use, cannot restore"),
	NEWER(10131, JSConsumerCreateFilterSubjectMismatchErr, moment,
		  "consumer create request did not match filtered subject from create subject"),
	NEWER(10132, JSConsumerCreateDurableAndNameMismatchErr, moment,
		  "consumer durable and name have to be equal if both are provided"),
	NEWER(10133, JSReplicasCountCannotBeNegativeErr, moment, "replicas count cannot be negative"),
};

#undef ROW
#undef NEWER

// What this sink says itself.
constexpr Code own[] = {
	{"NATS_NO_STREAM_REPLIED", Fault::moment, "what replied is not a stream, but a service that has the same subject"},
};

std::string
find(std::span<const Row> rows, int number, const char *prefix)
{
	auto row = std::ranges::find(rows, number, &Row::number);
	return row != rows.end() ? std::string(row->code.code) : prefix + std::to_string(number);
}

} // namespace

std::span<const Code>
codes()
{
	static const auto table = [] {
		std::array<Code, std::size(statuses) + std::size(errors) + std::size(own)> table{};
		auto next = std::ranges::transform(statuses, table.begin(), &Row::code).out;
		next = std::ranges::transform(errors, next, &Row::code).out;
		std::ranges::copy(own, next);
		return table;
	}();
	return table;
}

std::string
code_of(natsStatus status)
{
	return find(statuses, status, "NATS_");
}

std::string
code_of_error(int error)
{
	return find(errors, error, "JS_");
}

} // namespace relay::nats
