-- The control: the same outbox in SQL as one who knows PostgreSQL would write it for speed.
-- What is left between this and the extension is what SQL cannot have.
--
-- The payload is stored once; pending is slim; the ledger has one index; each function works
-- on its whole batch by one statement; one notification a call. No index holds a column of
-- the lease, so that a claim is a HOT update; leased rows are passed by at the head of the
-- index of due rows. It promises what the baseline does, except that the number of an
-- attempt comes from pending, and the ledger's index only guards it.
--
-- No plan can flip: pending is joined by ctid, and a completion looks each id up by itself
-- (a LATERAL that OFFSET 0 keeps from being pulled up), since the joins that statistics of
-- a queue suggest read all of pending for each batch. Sequential scans are off (bench/run).

CREATE SCHEMA control;
CREATE TYPE control.attempt_state AS ENUM ('DISPATCHED', 'FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE');

CREATE TABLE control.messages (
	outbox_id uuid PRIMARY KEY,
	queue text NOT NULL,
	event_type text NOT NULL,
	aggregate_type text,
	aggregate_id text NOT NULL,
	partition_key text,
	idempotency_key text,
	payload jsonb NOT NULL,
	headers jsonb NOT NULL,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (toast_tuple_target = 8160);
CREATE UNIQUE INDEX ON control.messages (queue, aggregate_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE control.pending (
	outbox_id uuid PRIMARY KEY,
	queue text NOT NULL,
	attempt_count int NOT NULL DEFAULT 0,
	next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	claimed_by text,
	claimed_at timestamptz,
	lease_token uuid,
	lease_expires_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ON control.pending (queue, next_attempt_at);

CREATE TABLE control.attempts (
	outbox_id uuid NOT NULL,
	attempt_no int NOT NULL,
	state control.attempt_state NOT NULL,
	worker_id text,
	lease_token uuid,
	claimed_at timestamptz,
	completed_at timestamptz,
	reference text,
	response_code text,
	error_code text,
	error_message text,
	latency_ms int,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	UNIQUE (outbox_id, attempt_no)
);

CREATE FUNCTION control.append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE 'append-only';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON control.messages FOR EACH ROW EXECUTE FUNCTION control.append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON control.attempts FOR EACH ROW EXECUTE FUNCTION control.append_only();

-- Time in milliseconds, then random bits, as in a UUID of version 7.
CREATE FUNCTION control.new_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
	SELECT encode(overlay(uuid_send(gen_random_uuid())
		PLACING substring(int8send((1000 * extract(epoch FROM clock_timestamp()))::bigint) FROM 3) FROM 1), 'hex')::uuid
$$;

---------------------------------------------------------------- producer

CREATE FUNCTION control.enqueue(event_type text, payload jsonb, queue text = 'default', aggregate_type text = NULL,
	aggregate_id text = NULL, partition_key text = NULL, idempotency_key text = NULL, headers jsonb = '{}')
RETURNS TABLE (outbox_id uuid, created boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
	INSERT INTO control.messages AS m (outbox_id, queue, event_type, aggregate_type, aggregate_id, partition_key,
		idempotency_key, payload, headers)
	VALUES (control.new_id(), enqueue.queue, enqueue.event_type, enqueue.aggregate_type, coalesce(enqueue.aggregate_id, ''),
		enqueue.partition_key, enqueue.idempotency_key, enqueue.payload, enqueue.headers)
	ON CONFLICT (queue, aggregate_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
	RETURNING m.outbox_id INTO outbox_id;
	created := FOUND;
	IF created THEN
		INSERT INTO control.pending (outbox_id, queue) VALUES (enqueue.outbox_id, enqueue.queue);
		PERFORM pg_notify('outbox_pending', enqueue.queue);
	ELSE
		SELECT m.outbox_id INTO outbox_id FROM control.messages m
		WHERE m.queue = enqueue.queue AND m.aggregate_id = coalesce(enqueue.aggregate_id, '')
			AND m.idempotency_key = enqueue.idempotency_key;
	END IF;
	RETURN NEXT;
END $$;

CREATE FUNCTION control.enqueue_batch(queue text, messages jsonb)
RETURNS TABLE (ordinality int, outbox_id uuid, created boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
	PERFORM pg_notify('outbox_pending', queue);
	RETURN QUERY
		WITH item AS MATERIALIZED (
			SELECT i.*, control.new_id() AS id, coalesce(i.aggregate_id, '') AS scope
			FROM ROWS FROM (jsonb_to_recordset(messages) AS (event_type text, payload jsonb, aggregate_type text,
				aggregate_id text, partition_key text, idempotency_key text)) WITH ORDINALITY i),
		written AS (
			INSERT INTO control.messages AS m (outbox_id, queue, event_type, aggregate_type, aggregate_id, partition_key,
				idempotency_key, payload, headers)
			SELECT i.id, enqueue_batch.queue, i.event_type, i.aggregate_type, i.scope, i.partition_key, i.idempotency_key,
				i.payload, '{}'
			FROM item i
			ON CONFLICT (queue, aggregate_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
			RETURNING m.outbox_id),
		work AS (
			INSERT INTO control.pending (outbox_id, queue) SELECT w.outbox_id, enqueue_batch.queue FROM written w)
		SELECT i.ordinality::int,
			coalesce(w.outbox_id, (SELECT m.outbox_id FROM control.messages m
				WHERE m.queue = enqueue_batch.queue AND m.aggregate_id = i.scope AND m.idempotency_key = i.idempotency_key)),
			w.outbox_id IS NOT NULL
		FROM item i LEFT JOIN written w ON w.outbox_id = i.id
		ORDER BY i.ordinality;
END $$;

---------------------------------------------------------------- worker

-- Of one queue, the first that is named.
CREATE FUNCTION control.claim(worker_id text, batch_size int = 10, lease interval = '30 s', queues text[] = '{default}')
RETURNS TABLE (outbox_id uuid, queue text, event_type text, aggregate_type text, aggregate_id text, partition_key text,
	idempotency_key text, payload jsonb, headers jsonb, attempt_count int, created_at timestamptz,
	lease_token uuid, lease_expires_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	clock timestamptz := clock_timestamp();
	queue_name text := queues[1];
BEGIN
	RETURN QUERY
		WITH due AS (
			SELECT p.ctid FROM control.pending p
			WHERE p.queue = queue_name AND p.next_attempt_at <= clock AND (p.claimed_by IS NULL OR p.lease_expires_at <= clock)
			ORDER BY p.next_attempt_at
			LIMIT batch_size
			FOR UPDATE SKIP LOCKED),
		leased AS (
			UPDATE control.pending p
			SET claimed_by = worker_id, claimed_at = clock, lease_token = gen_random_uuid(), lease_expires_at = clock + lease
			FROM due WHERE p.ctid = due.ctid
			RETURNING p.*)
		SELECT m.outbox_id, m.queue, m.event_type, m.aggregate_type, m.aggregate_id, m.partition_key, m.idempotency_key,
			m.payload, m.headers, l.attempt_count, m.created_at, l.lease_token, l.lease_expires_at
		FROM leased l
		CROSS JOIN LATERAL (SELECT * FROM control.messages m WHERE m.outbox_id = l.outbox_id OFFSET 0) m;
END $$;

CREATE FUNCTION control.complete(outbox_id uuid, lease_token uuid, worker_id text, state control.attempt_state)
RETURNS TABLE (attempt_no int, recorded control.attempt_state) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	held control.pending;
	clock timestamptz := clock_timestamp();
	terminal boolean := state IN ('DISPATCHED', 'FAILED');
BEGIN
	IF terminal THEN
		DELETE FROM control.pending p
		WHERE p.outbox_id = complete.outbox_id AND p.lease_token = complete.lease_token AND p.claimed_by = worker_id
			AND p.lease_expires_at > clock
		RETURNING * INTO held;
	ELSE
		SELECT * INTO held FROM control.pending p
		WHERE p.outbox_id = complete.outbox_id AND p.lease_token = complete.lease_token AND p.claimed_by = worker_id
			AND p.lease_expires_at > clock
		FOR UPDATE;
		UPDATE control.pending p
		SET attempt_count = p.attempt_count + 1, next_attempt_at = clock + interval '1 s',
			claimed_by = NULL, claimed_at = NULL, lease_token = NULL, lease_expires_at = NULL
		WHERE p.outbox_id = held.outbox_id;
	END IF;
	IF held.outbox_id IS NULL THEN
		RAISE 'LEASE_LOST' USING ERRCODE = 'P7002';
	END IF;
	INSERT INTO control.attempts AS a (outbox_id, attempt_no, state, worker_id, lease_token, claimed_at, completed_at)
	VALUES (held.outbox_id, held.attempt_count + 1, state, worker_id, held.lease_token, held.claimed_at, CASE WHEN terminal THEN clock END)
	RETURNING a.attempt_no, a.state INTO attempt_no, recorded;
	RETURN NEXT;
END $$;

CREATE FUNCTION control.complete_batch(worker_id text, outbox_ids uuid[], lease_tokens uuid[], states control.attempt_state[])
RETURNS TABLE (outbox_id uuid, attempt_no int, recorded control.attempt_state, error text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	clock timestamptz := clock_timestamp();
BEGIN
	RETURN QUERY
		WITH item AS MATERIALIZED (
			SELECT i.ordinality, i.id, i.token, i.state, p.place
			FROM unnest(outbox_ids, lease_tokens, states) WITH ORDINALITY i (id, token, state, ordinality)
			LEFT JOIN LATERAL (
				SELECT p.ctid AS place FROM control.pending p
				WHERE p.outbox_id = i.id AND p.lease_token = i.token AND p.claimed_by = worker_id AND p.lease_expires_at > clock
				OFFSET 0) p ON true),
		-- Where another transaction was there in between, the row is no longer at its place.
		ended AS (
			DELETE FROM control.pending p USING item i
			WHERE p.ctid = i.place AND p.lease_token = i.token AND i.state IN ('DISPATCHED', 'FAILED')
			RETURNING i.ordinality, i.state, p.*),
		waiting AS (
			UPDATE control.pending p
			SET attempt_count = p.attempt_count + 1, next_attempt_at = clock + interval '1 s',
				claimed_by = NULL, claimed_at = NULL, lease_token = NULL, lease_expires_at = NULL
			FROM item i
			WHERE p.ctid = i.place AND p.lease_token = i.token AND i.state = 'RETRYABLE'
			RETURNING i.ordinality, i.state, p.outbox_id, p.attempt_count - 1 AS attempt_count, i.token AS lease_token,
				clock AS claimed_at),
		done AS (
			SELECT e.ordinality, e.state, e.outbox_id, e.attempt_count, e.lease_token, e.claimed_at FROM ended e
			UNION ALL
			SELECT w.ordinality, w.state, w.outbox_id, w.attempt_count, w.lease_token, w.claimed_at FROM waiting w),
		ledger AS (
			INSERT INTO control.attempts AS a (outbox_id, attempt_no, state, worker_id, lease_token, claimed_at, completed_at)
			SELECT d.outbox_id, d.attempt_count + 1, d.state, worker_id, d.lease_token, d.claimed_at,
				CASE WHEN d.state <> 'RETRYABLE' THEN clock END
			FROM done d
			RETURNING a.outbox_id, a.attempt_no, a.state)
		SELECT i.id, l.attempt_no, l.state, CASE WHEN l.outbox_id IS NULL THEN 'P7002' END
		FROM item i LEFT JOIN ledger l ON l.outbox_id = i.id
		ORDER BY i.ordinality;
END $$;
