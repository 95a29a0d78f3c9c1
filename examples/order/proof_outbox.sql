-- What the example claims of each database's outbox, in the form of proof.sql. The queue saga_internal keeps the timeouts
-- of sagas that have ended until their time: then they do nothing.
SELECT 'every message has exactly one terminal attempt, DISPATCHED' AS claim,
	(SELECT count(*) FROM outbox.messages m
		LEFT JOIN (SELECT outbox_id, array_agg(state) AS states FROM outbox.attempts WHERE state IN ('DISPATCHED', 'FAILED') GROUP BY outbox_id) a USING (outbox_id)
		WHERE queue <> 'saga_internal' AND states IS DISTINCT FROM '{DISPATCHED}') AS against
UNION ALL
SELECT 'nothing is pending', (SELECT count(*) FROM outbox.pending WHERE queue <> 'saga_internal')
UNION ALL
SELECT 'the participant that was killed lost leases here, and others took over',
	(SELECT (count(*) = 0)::int FROM outbox.attempts WHERE worker_id = 'participant2' AND state = 'ZOMBIE_REQUEUE')
UNION ALL
SELECT 'outbox.check() and inbox.check() find nothing', (SELECT count(*) FROM outbox.check()) + (SELECT count(*) FROM inbox.check());
