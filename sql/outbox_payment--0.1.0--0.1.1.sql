/* outbox_payment 0.1.0 to 0.1.1.
 *
 * pg_catalog compares enums by an operator for all of them. One for outbox.attempt_state
 * itself, in the schema in which the extension is made, was taken in its place, and ran with
 * the rights of whoever read the view. So the view names the operator's schema.
 * What it takes: a moment's exclusive lock on the view.
 */
\echo Use "ALTER EXTENSION outbox_payment UPDATE TO '0.1.1'" to load this file. \quit

CREATE OR REPLACE VIEW supervisor_outbox_status WITH (security_barrier) AS
	SELECT s.pending_count AS pending_depth, s.leased_count, s.expired_lease_count, s.due_unleased_count,
		s.oldest_pending_age_seconds, s.dead_count AS dlq_depth,
		a.dispatched_count, a.failed_count, a.retryable_count, a.zombie_requeue_count
	FROM outbox.status s
	LEFT JOIN (
		SELECT count(*) FILTER (WHERE a.state OPERATOR(pg_catalog.=) 'DISPATCHED'::outbox.attempt_state) AS dispatched_count,
			count(*) FILTER (WHERE a.state OPERATOR(pg_catalog.=) 'FAILED'::outbox.attempt_state) AS failed_count,
			count(*) FILTER (WHERE a.state OPERATOR(pg_catalog.=) 'RETRYABLE'::outbox.attempt_state) AS retryable_count,
			count(*) FILTER (WHERE a.state OPERATOR(pg_catalog.=) 'ZOMBIE_REQUEUE'::outbox.attempt_state) AS zombie_requeue_count
		FROM outbox.attempts a JOIN outbox.messages m ON m.outbox_id = a.outbox_id
		WHERE m.queue = 'payment'::text) a ON true
	WHERE s.queue = 'payment'::text;
