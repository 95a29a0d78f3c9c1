// librdkafka alone, with the properties that the relay's sink sets.
//
//	kafka BROKERS TOPIC COUNT
#include "bare.h"

#include <librdkafka/rdkafka.h>

namespace {

long accepted = 0;

void
on_report(rd_kafka_t *, const rd_kafka_message_t *message, void *)
{
	if (message->err != 0)
		die("a message was refused", rd_kafka_err2str(message->err));
	accepted++;
}

void
set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
	char why[256];

	if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
		die(name, why);
}

} // namespace

int
main(int, char **arguments)
{
	char why[256];
	const long count = atol(arguments[3]);
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	set(conf, "bootstrap.servers", arguments[1]);
	set(conf, "enable.idempotence", "true");
	set(conf, "compression.type", "lz4");
	rd_kafka_conf_set_dr_msg_cb(conf, on_report);
	rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
	if (producer == nullptr)
		die("no producer", why);

	const Measured measured(count);
	for (long sent = 0; accepted < count;)
	{
		rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR__QUEUE_FULL;

		if (sent < count)
			error = rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(arguments[2]),
									  RD_KAFKA_V_VALUE(const_cast<char *>(body.data()), body.size()),
									  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
		if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
			sent++;
		else if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL)
			die("produce", rd_kafka_err2str(error));
		rd_kafka_poll(producer, error == RD_KAFKA_RESP_ERR_NO_ERROR ? 0 : 100);
	}
}
