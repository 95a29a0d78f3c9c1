-- The baseline: the classic outbox that is written in SQL and PL/pgSQL, as many applications
-- have it.
--
-- One table of work holds the payload and the lease; a ledger of attempts holds the payload
-- again, so that it can be read by itself. A trigger notifies for each row. Enqueueing and
-- completing go message by message, as applications do it; the batch functions, which call
-- them, are there for comparison (the variant batched). It gives the promises that the
-- extension gives: one message for each idempotency key, for ever; one lease at a time,
-- fenced by a token; numbered attempts, at most one of them final; numbers of a key without
-- gaps.
--
-- What is done for it, so that it shows what this shape can do and not what a bad day makes
-- of it: ids ascend with time, so that indexes grow at their end; statements are prepared
-- once, inside the functions; a claim joins by ctid and sequential scans are off (bench/run),
-- so that no plan can flip to reading all of pending, as the statistics of a queue, always
-- wrong, suggest; a completion finds its row by the primary key and compares the lease by
-- itself, where one query over both may choose the index of leases; autovacuum is on; a
-- batch takes numbers in the order of their keys, so that batches do not deadlock.

CREATE SCHEMA baseline;
CREATE TYPE baseline.attempt_state AS ENUM ('DISPATCHED', 'FAILED', 'RETRYABLE', 'ZOMBIE_REQUEUE');

CREATE TABLE baseline.queues (
	queue text PRIMARY KEY,
	numbered boolean NOT NULL
);

CREATE TABLE baseline.pending (
	-- Time in milliseconds, then random bits, as in a UUID of version 7.
	outbox_id uuid PRIMARY KEY DEFAULT encode(overlay(uuid_send(gen_random_uuid())
		PLACING substring(int8send((1000 * extract(epoch FROM clock_timestamp()))::bigint) FROM 3) FROM 1), 'hex')::uuid,
	queue text NOT NULL,
	event_type text NOT NULL,
	aggregate_type text,
	aggregate_id text NOT NULL,
	partition_key text,
	sequence_id bigint,
	idempotency_key text,
	payload jsonb NOT NULL,
	headers jsonb NOT NULL,
	attempt_count int NOT NULL DEFAULT 0,
	next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	claimed_by text,
	claimed_at timestamptz,
	lease_token uuid,
	lease_expires_at timestamptz,
	CHECK (num_nulls(claimed_by, claimed_at, lease_token, lease_expires_at) IN (0, 4))
);
CREATE UNIQUE INDEX ON baseline.pending (queue, aggregate_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX ON baseline.pending (queue, partition_key, sequence_id) WHERE sequence_id IS NOT NULL;
CREATE INDEX ON baseline.pending (queue, next_attempt_at, created_at);
CREATE INDEX ON baseline.pending (claimed_by, lease_expires_at) WHERE claimed_by IS NOT NULL;

CREATE TABLE baseline.attempts (
	attempt_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	outbox_id uuid NOT NULL,
	attempt_no int NOT NULL CHECK (attempt_no >= 1),
	state baseline.attempt_state NOT NULL,
	queue text NOT NULL,
	event_type text NOT NULL,
	aggregate_type text,
	aggregate_id text NOT NULL,
	partition_key text,
	sequence_id bigint,
	idempotency_key text,
	payload jsonb NOT NULL,
	headers jsonb NOT NULL,
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
CREATE UNIQUE INDEX one_terminal_per_outbox ON baseline.attempts (outbox_id) WHERE state IN ('DISPATCHED', 'FAILED');
-- Keys of what is no longer pending.
CREATE INDEX ON baseline.attempts (queue, aggregate_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE TABLE baseline.sequences (
	queue text,
	partition_key text,
	next_sequence_id bigint NOT NULL,
	PRIMARY KEY (queue, partition_key)
) WITH (fillfactor = 50);

CREATE FUNCTION baseline.tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('outbox_pending', NEW.queue);
	RETURN NULL;
END $$;
CREATE TRIGGER tell AFTER INSERT ON baseline.pending FOR EACH ROW EXECUTE FUNCTION baseline.tell();

CREATE FUNCTION baseline.append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE 'append-only';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON baseline.attempts FOR EACH ROW EXECUTE FUNCTION baseline.append_only();

---------------------------------------------------------------- producer

-- The message that has the key; none is not an error.
CREATE FUNCTION baseline.find(queue text, aggregate_id text, idempotency_key text)
RETURNS TABLE (outbox_id uuid, sequence_id bigint) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY
		SELECT p.outbox_id, p.sequence_id FROM baseline.pending p
		WHERE p.queue = find.queue AND p.aggregate_id = find.aggregate_id AND p.idempotency_key = find.idempotency_key
		UNION ALL
		SELECT a.outbox_id, a.sequence_id FROM baseline.attempts a
		WHERE a.queue = find.queue AND a.aggregate_id = find.aggregate_id AND a.idempotency_key = find.idempotency_key
		LIMIT 1;
END $$;

CREATE FUNCTION baseline.enqueue(event_type text, payload jsonb, queue text = 'default', aggregate_type text = NULL,
	aggregate_id text = NULL, partition_key text = NULL, idempotency_key text = NULL, headers jsonb = '{}')
RETURNS TABLE (outbox_id uuid, sequence_id bigint, created boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	scope text := coalesce(enqueue.aggregate_id, '');
	numbered boolean;
BEGIN
	SELECT q.numbered AND enqueue.partition_key IS NOT NULL INTO STRICT numbered FROM baseline.queues q WHERE q.queue = enqueue.queue;
	IF numbered THEN
		INSERT INTO baseline.sequences AS s VALUES (enqueue.queue, enqueue.partition_key, 2)
		ON CONFLICT (queue, partition_key) DO UPDATE SET next_sequence_id = s.next_sequence_id + 1
		RETURNING s.next_sequence_id - 1 INTO sequence_id;
	END IF;

	-- Who uses the same key at the same time waits here. After that, what was finished before is
	-- to be seen in attempts.
	INSERT INTO baseline.pending AS p (queue, event_type, aggregate_type, aggregate_id, partition_key, sequence_id,
		idempotency_key, payload, headers)
	VALUES (enqueue.queue, enqueue.event_type, enqueue.aggregate_type, scope, enqueue.partition_key, enqueue.sequence_id,
		enqueue.idempotency_key, enqueue.payload, enqueue.headers)
	ON CONFLICT (queue, aggregate_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
	RETURNING p.outbox_id INTO outbox_id;
	created := FOUND;
	IF created AND enqueue.idempotency_key IS NOT NULL AND EXISTS (
		SELECT FROM baseline.attempts a
		WHERE a.queue = enqueue.queue AND a.aggregate_id = scope AND a.idempotency_key = enqueue.idempotency_key)
	THEN
		DELETE FROM baseline.pending p WHERE p.outbox_id = enqueue.outbox_id;
		created := false;
	END IF;

	IF NOT created THEN
		IF numbered THEN
			UPDATE baseline.sequences s SET next_sequence_id = s.next_sequence_id - 1
			WHERE s.queue = enqueue.queue AND s.partition_key = enqueue.partition_key;
		END IF;
		SELECT f.outbox_id, f.sequence_id INTO outbox_id, sequence_id
		FROM baseline.find(enqueue.queue, scope, enqueue.idempotency_key) f;
	END IF;
	RETURN NEXT;
END $$;

CREATE FUNCTION baseline.enqueue_batch(queue text, messages jsonb)
RETURNS TABLE (ordinality int, outbox_id uuid, sequence_id bigint, created boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
	RETURN QUERY
		SELECT m.ordinality::int, e.outbox_id, e.sequence_id, e.created
		FROM (
			SELECT i.* FROM ROWS FROM (jsonb_to_recordset(messages) AS (event_type text, payload jsonb, aggregate_type text,
				aggregate_id text, partition_key text, idempotency_key text)) WITH ORDINALITY i
			ORDER BY i.partition_key, i.ordinality) m
		CROSS JOIN LATERAL baseline.enqueue(m.event_type, m.payload, enqueue_batch.queue, m.aggregate_type, m.aggregate_id,
			m.partition_key, m.idempotency_key) e;
END $$;

---------------------------------------------------------------- worker

-- Of one queue, the first that is named.
CREATE FUNCTION baseline.claim(worker_id text, batch_size int = 10, lease interval = '30 s', queues text[] = '{default}')
RETURNS TABLE (outbox_id uuid, queue text, event_type text, aggregate_type text, aggregate_id text, partition_key text,
	sequence_id bigint, idempotency_key text, payload jsonb, headers jsonb, attempt_count int, created_at timestamptz,
	lease_token uuid, lease_expires_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	clock timestamptz := clock_timestamp();
	queue_name text := queues[1];
BEGIN
	RETURN QUERY
		WITH due AS (
			SELECT p.ctid FROM baseline.pending p
			WHERE p.queue = queue_name AND p.next_attempt_at <= clock AND (p.claimed_by IS NULL OR p.lease_expires_at <= clock)
			ORDER BY p.next_attempt_at, p.created_at
			LIMIT batch_size
			FOR UPDATE SKIP LOCKED)
		UPDATE baseline.pending p
		SET claimed_by = worker_id, claimed_at = clock, lease_token = gen_random_uuid(), lease_expires_at = clock + lease
		FROM due WHERE p.ctid = due.ctid
		RETURNING p.outbox_id, p.queue, p.event_type, p.aggregate_type, p.aggregate_id, p.partition_key, p.sequence_id,
			p.idempotency_key, p.payload, p.headers, p.attempt_count, p.created_at, p.lease_token, p.lease_expires_at;
END $$;

CREATE FUNCTION baseline.complete(outbox_id uuid, lease_token uuid, worker_id text, state baseline.attempt_state,
	reference text = NULL, response_code text = NULL, error_code text = NULL, error_message text = NULL,
	latency_ms int = NULL, retry_delay interval = '1 s')
RETURNS TABLE (attempt_no int, recorded baseline.attempt_state) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	held baseline.pending;
	clock timestamptz := clock_timestamp();
	terminal boolean := state IN ('DISPATCHED', 'FAILED');
BEGIN
	SELECT * INTO held FROM baseline.pending p WHERE p.outbox_id = complete.outbox_id FOR UPDATE;
	IF (held.lease_token = complete.lease_token AND held.claimed_by = complete.worker_id AND held.lease_expires_at > clock) IS NOT TRUE THEN
		RAISE 'LEASE_LOST' USING ERRCODE = 'P7002';
	END IF;

	INSERT INTO baseline.attempts AS a (outbox_id, attempt_no, state, queue, event_type, aggregate_type, aggregate_id, partition_key,
		sequence_id, idempotency_key, payload, headers, worker_id, lease_token, claimed_at, completed_at, reference,
		response_code, error_code, error_message, latency_ms)
	VALUES (held.outbox_id,
		1 + coalesce((SELECT max(l.attempt_no) FROM baseline.attempts l WHERE l.outbox_id = held.outbox_id), 0),
		state, held.queue, held.event_type, held.aggregate_type, held.aggregate_id, held.partition_key, held.sequence_id,
		held.idempotency_key, held.payload, held.headers, worker_id, held.lease_token, held.claimed_at,
		CASE WHEN terminal THEN clock END, reference, response_code, error_code, error_message, latency_ms)
	RETURNING a.attempt_no, a.state INTO attempt_no, recorded;

	IF terminal THEN
		DELETE FROM baseline.pending p WHERE p.outbox_id = complete.outbox_id;
	ELSE
		UPDATE baseline.pending p
		SET attempt_count = p.attempt_count + 1, next_attempt_at = clock + retry_delay,
			claimed_by = NULL, claimed_at = NULL, lease_token = NULL, lease_expires_at = NULL
		WHERE p.outbox_id = complete.outbox_id;
	END IF;
	RETURN NEXT;
END $$;

-- An item whose lease was lost is its own error, as in the extension.
CREATE FUNCTION baseline.complete_batch(worker_id text, outbox_ids uuid[], lease_tokens uuid[], states baseline.attempt_state[])
RETURNS TABLE (outbox_id uuid, attempt_no int, recorded baseline.attempt_state, error text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
	FOR i IN 1 .. cardinality(outbox_ids) LOOP
		outbox_id := outbox_ids[i];
		error := NULL;
		BEGIN
			SELECT c.attempt_no, c.recorded INTO attempt_no, recorded
			FROM baseline.complete(outbox_ids[i], lease_tokens[i], worker_id, states[i]) c;
		EXCEPTION WHEN SQLSTATE 'P7002' THEN
			error := 'P7002';
		END;
		RETURN NEXT;
	END LOOP;
END $$;
