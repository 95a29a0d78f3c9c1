-- The state machine of outbox as a specification: plain tables, and one function for
-- each function of the interface, of the same name and arguments, written from the
-- contract for reading, not for speed. The differential test installs this into a
-- schema `model` of its own database and sends both the same calls; it is no part of
-- the extension.
--
-- How it is run: each session of the extension has a session of the model beside it,
-- always READ COMMITTED, whose transactions begin and end with the other's. So what
-- waits for whom, what a rollback takes back and what others may see is PostgreSQL's
-- own doing here.
--
-- Where the contract leaves a choice (the clock's reading, an id, a token, the order of
-- what fell due in the same moment), the model takes what the extension chose, from
-- model.choices; the driver checks whether the choice was allowed (ids and tokens new,
-- clock within the call).

CREATE SCHEMA model;

---------------------------------------------------------------- tables

CREATE TABLE model.queues (
	queue text PRIMARY KEY,
	max_attempts int,
	lease interval NOT NULL,
	backoff_base interval NOT NULL,
	backoff_cap interval NOT NULL,
	backoff_jitter real NOT NULL,
	repair_delay interval NOT NULL,
	ordering text NOT NULL,
	on_dead_head text NOT NULL,
	validator text,
	paused boolean NOT NULL,
	max_in_flight int,
	created_at timestamptz NOT NULL,
	payload_kind text NOT NULL,
	max_releases int,
	rate_limit float8,
	rate_burst int,
	max_in_flight_per_key int,
	fair_by text,
	priority_aging interval,
	handler text,
	handler_timeout interval NOT NULL DEFAULT '30 seconds',
	dead_letter_queue text,
	protect jsonb,
	reveal_on_claim boolean NOT NULL DEFAULT false,
	audit_events boolean NOT NULL DEFAULT false,
	slack interval NOT NULL
);

CREATE TABLE model.messages (
	outbox_id uuid PRIMARY KEY,
	queue text NOT NULL,
	event_id uuid NOT NULL,
	event_type text NOT NULL,
	aggregate_type text,
	aggregate_id text,
	partition_key text,
	sequence_id bigint,
	idempotency_key text,
	routing_key text,
	priority smallint NOT NULL,
	max_attempts int,
	payload jsonb,
	headers jsonb NOT NULL,
	replay_of uuid,
	created_at timestamptz NOT NULL,
	payload_bytes bytea,
	content_type text,
	made_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
	slack interval NOT NULL,
	CHECK (num_nulls(payload, payload_bytes) = 1)
);

CREATE TABLE model.pending (
	outbox_id uuid PRIMARY KEY,
	queue text NOT NULL,
	priority smallint NOT NULL,
	partition_key text,
	sequence_id bigint,
	attempt_count int NOT NULL DEFAULT 0,
	max_attempts int,
	next_attempt_at timestamptz NOT NULL,
	created_at timestamptz NOT NULL,
	claimed_by text,
	claimed_at timestamptz,
	lease_token uuid,
	lease_expires_at timestamptz,
	release_count int NOT NULL DEFAULT 0,
	slack interval NOT NULL,
	UNIQUE (queue, partition_key, sequence_id),
	CHECK (num_nulls(claimed_by, claimed_at, lease_token, lease_expires_at) IN (0, 4))
);

CREATE TABLE model.attempts (
	outbox_id uuid NOT NULL,
	attempt_no int NOT NULL,
	state outbox.attempt_state NOT NULL,
	worker_id text,
	lease_token uuid,
	claimed_at timestamptz,
	completed_at timestamptz,
	reference text,
	response_code text,
	error_code text,
	error_message text,
	latency_ms int,
	recorded_by text,
	created_at timestamptz NOT NULL,
	slack interval NOT NULL,
	PRIMARY KEY (outbox_id, attempt_no)
);
CREATE UNIQUE INDEX one_terminal ON model.attempts (outbox_id) WHERE state IN ('DISPATCHED', 'FAILED');

CREATE TABLE model.keys (
	queue text,
	kind text,					-- idempotency, event
	scope text,
	key text,
	outbox_id uuid,				-- NULL while the message is being written
	CONSTRAINT known PRIMARY KEY (queue, kind, scope, key)
);

CREATE TABLE model.sequences (
	queue text,
	partition_key text,
	next_sequence_id bigint NOT NULL,
	CONSTRAINT numbered PRIMARY KEY (queue, partition_key)
);

CREATE TABLE model.replays (
	outbox_id uuid PRIMARY KEY		-- a dead letter is replayed at most once
);

CREATE TABLE model.blocks (			-- dead heads that hold their keys
	queue text,
	partition_key text,
	sequence_id bigint NOT NULL,
	outbox_id uuid NOT NULL,
	PRIMARY KEY (queue, partition_key)
);

-- What the extension chose in the current call of each session.
CREATE TABLE model.choices (
	session int PRIMARY KEY,
	call_at timestamptz,		-- the call began then; the clock was read within slack after it
	slack interval,
	ids uuid[],					-- outbox_ids, in the order of the answer
	tokens uuid[],				-- lease tokens, likewise
	held_back uuid[] NOT NULL DEFAULT '{}'	-- messages whose turn has come, of which the extension does not know yet
);

-- Not of the specification: notes for each row by how much its times may be later in
-- the extension.
CREATE FUNCTION model.note_slack() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	SELECT greatest(c.slack, '0') INTO NEW.slack
	FROM model.choices c WHERE c.session = current_setting('model.session', true)::int;
	IF TG_OP = 'UPDATE' THEN
		NEW.slack := greatest(NEW.slack, OLD.slack);
	ELSIF TG_TABLE_NAME = 'attempts' THEN
		SELECT greatest(NEW.slack, p.slack) INTO NEW.slack FROM model.pending p WHERE p.outbox_id = NEW.outbox_id;
	END IF;
	NEW.slack := coalesce(NEW.slack, '0');
	RETURN NEW;
END $$;
CREATE TRIGGER slack BEFORE INSERT OR UPDATE ON model.queues FOR EACH ROW EXECUTE FUNCTION model.note_slack();
CREATE TRIGGER slack BEFORE INSERT OR UPDATE ON model.messages FOR EACH ROW EXECUTE FUNCTION model.note_slack();
CREATE TRIGGER slack BEFORE INSERT OR UPDATE ON model.pending FOR EACH ROW EXECUTE FUNCTION model.note_slack();
CREATE TRIGGER slack BEFORE INSERT OR UPDATE ON model.attempts FOR EACH ROW EXECUTE FUNCTION model.note_slack();

---------------------------------------------------------------- choices

CREATE FUNCTION model.clock() RETURNS timestamptz LANGUAGE sql AS
	$$ SELECT call_at FROM model.choices WHERE session = current_setting('model.session')::int $$;

CREATE FUNCTION model.chosen_id(nth int) RETURNS uuid LANGUAGE sql AS
	$$ SELECT coalesce((SELECT ids[nth] FROM model.choices WHERE session = current_setting('model.session')::int),
		gen_random_uuid()) $$;

CREATE FUNCTION model.chosen_token(nth int) RETURNS uuid LANGUAGE sql AS
	$$ SELECT coalesce((SELECT tokens[nth] FROM model.choices WHERE session = current_setting('model.session')::int),
		gen_random_uuid()) $$;

-- Among rows of the same rank the extension's order holds.
CREATE FUNCTION model.chosen_rank(id uuid) RETURNS int LANGUAGE sql AS
	$$ SELECT array_position((SELECT ids FROM model.choices WHERE session = current_setting('model.session')::int), id) $$;

-- Not of the specification either: a batch that waited at a later element has made up ids
-- for those before it, when the extension's were not known yet.
CREATE FUNCTION model.rename(made_up uuid, chosen uuid) RETURNS void LANGUAGE sql AS $$
	UPDATE model.messages SET outbox_id = chosen,
		event_id = CASE event_id WHEN made_up THEN chosen ELSE event_id END WHERE outbox_id = made_up;
	UPDATE model.pending SET outbox_id = chosen WHERE outbox_id = made_up;
	UPDATE model.keys SET outbox_id = chosen WHERE outbox_id = made_up;
$$;

-- Nor is that a message stands back which a transaction adds to a key with a mark: nobody else sees it yet.
CREATE FUNCTION model.is_held_for_mark(queue text, partition_key text) RETURNS boolean LANGUAGE sql AS $$
	SELECT tokens IS NOT NULL AND tokens[1] IS NULL AND EXISTS (SELECT FROM outbox.key_marks m
		WHERE m.queue = is_held_for_mark.queue AND m.partition_key = is_held_for_mark.partition_key)
	FROM model.choices WHERE session = current_setting('model.session')::int
$$;

-- The doubts of a session above READ COMMITTED are looked up from outside: what it has leased itself is in none.
CREATE FUNCTION model.is_in_doubt(id uuid) RETURNS boolean LANGUAGE sql AS $$
	SELECT id = ANY ((SELECT held_back FROM model.choices WHERE session = current_setting('model.session')::int)::uuid[])
		AND NOT (coalesce(current_setting('model.snapshot', true), '') <> '' AND EXISTS (SELECT FROM model.pending p
			WHERE p.outbox_id = id AND p.lease_token IS NOT NULL
			AND pg_xact_status(p.xmin::text::xid8) = 'in progress'))
$$;

---------------------------------------------------------------- arguments and time

CREATE FUNCTION model.refuse(code text, reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION '%', reason USING ERRCODE = code;
END $$;

CREATE FUNCTION model.refuse_null(is_null boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF is_null THEN PERFORM model.refuse('22004', 'NULL where NULL has no meaning'); END IF;
END $$;

CREATE FUNCTION model.refuse_bad(is_bad boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF is_bad THEN PERFORM model.refuse('22023', 'value out of range'); END IF;
END $$;

-- A day has 24 hours, a month 30 days, everywhere.
CREATE FUNCTION model.seconds(i interval) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
	SELECT ((extract(year FROM i) * 12 + extract(month FROM i)) * 30 + extract(day FROM i)) * 86400
		+ extract(hour FROM i) * 3600 + extract(minute FROM i) * 60 + extract(second FROM i)
$$;

-- Ten years are enough: outbox.max_delay.
CREATE FUNCTION model.too_long(delay interval) RETURNS boolean LANGUAGE sql IMMUTABLE AS
	$$ SELECT coalesce(model.seconds(delay) > 3653 * 86400, false) $$;

CREATE FUNCTION model.after(delay interval) RETURNS timestamptz LANGUAGE sql AS
	$$ SELECT model.clock() + model.seconds(delay) * interval '1 second' $$;

-- Without a delay a message whose lease was lost keeps its place.
CREATE FUNCTION model.after_repair(due timestamptz, delay interval) RETURNS timestamptz LANGUAGE sql AS
	$$ SELECT CASE WHEN delay > '0' THEN model.after(delay) ELSE least(due, model.clock()) END $$;

CREATE FUNCTION model.known_queue(queue text) RETURNS model.queues LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	known model.queues;
BEGIN
	SELECT q.* INTO known FROM model.queues q WHERE q.queue = queue;
	IF NOT FOUND THEN PERFORM model.refuse('P7004', 'QUEUE_NOT_FOUND'); END IF;
	RETURN known;
END $$;

-- The queues that a worker names, each once, in the order given.
CREATE FUNCTION model.known_queues(queues text[]) RETURNS SETOF model.queues LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	name text;
	seen text[] := '{}';
BEGIN
	PERFORM model.refuse_bad(array_ndims(queues) > 1 OR cardinality(queues) = 0);
	PERFORM model.refuse_null(array_position(queues, NULL) IS NOT NULL);
	FOREACH name IN ARRAY queues LOOP
		PERFORM model.known_queue(name);
		IF name <> ALL (seen) THEN
			RETURN NEXT model.known_queue(name);
			seen := seen || name;
		END IF;
	END LOOP;
END $$;

---------------------------------------------------------------- the ledger and the lease

CREATE FUNCTION model.attempts_of(id uuid) RETURNS int LANGUAGE sql AS
	$$ SELECT coalesce((SELECT max(attempt_no) FROM model.attempts WHERE outbox_id = id), 0) $$;

CREATE FUNCTION model.has_ended(id uuid) RETURNS boolean LANGUAGE sql AS
	$$ SELECT EXISTS (SELECT FROM model.attempts WHERE outbox_id = id AND state IN ('DISPATCHED', 'FAILED')) $$;

-- The message's own ceiling or else the queue's; NULL = none.
CREATE FUNCTION model.ceiling(p model.pending) RETURNS int LANGUAGE sql AS
	$$ SELECT coalesce(p.max_attempts, (SELECT q.max_attempts FROM model.queues q WHERE q.queue = p.queue)) $$;

-- The ceiling was lowered below what was tried. The cached count makes one look, the ledger is the truth.
CREATE FUNCTION model.is_used_up(p model.pending) RETURNS boolean LANGUAGE sql AS $$
	SELECT coalesce(least(p.attempt_count, model.attempts_of(p.outbox_id)) >= model.ceiling(p), false)
$$;

-- Appends the next attempt. error_message '*': the contract does not say what stands there.
CREATE FUNCTION model.append(p model.pending, state outbox.attempt_state, recorded_by text,
	error_code text, error_message text, reference text = NULL, response_code text = NULL, latency_ms int = NULL)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	number int := model.attempts_of(p.outbox_id) + 1;
	ended_at timestamptz := CASE WHEN state IN ('DISPATCHED', 'FAILED') THEN model.clock() END;
BEGIN
	INSERT INTO model.attempts VALUES (p.outbox_id, number, state, p.claimed_by, p.lease_token, p.claimed_at,
		ended_at, reference, response_code, error_code, error_message, latency_ms, recorded_by, model.clock());
	RETURN number;
END $$;

---------------------------------------------------------------- order within a key

CREATE FUNCTION model.is_ordered(p model.pending) RETURNS boolean LANGUAGE sql AS $$
	SELECT p.sequence_id IS NOT NULL AND EXISTS (SELECT FROM model.queues q WHERE q.queue = p.queue AND q.ordering = 'fifo')
$$;

-- An earlier message of its key has not ended, or blocks the key. A view, which is read as a whole after each step: a
-- function for each row would take half of the time of the test.
CREATE VIEW model.waiting AS
	SELECT p.outbox_id FROM model.pending p JOIN model.queues q USING (queue)
	WHERE p.sequence_id IS NOT NULL AND q.ordering = 'fifo' AND (
		EXISTS (SELECT FROM model.pending e
			WHERE e.queue = p.queue AND e.partition_key = p.partition_key AND e.sequence_id < p.sequence_id)
		OR EXISTS (SELECT FROM model.blocks b
			WHERE b.queue = p.queue AND b.partition_key = p.partition_key AND b.sequence_id < p.sequence_id));

CREATE FUNCTION model.waits(p model.pending) RETURNS boolean LANGUAGE sql AS
	$$ SELECT EXISTS (SELECT FROM model.waiting w WHERE w.outbox_id = p.outbox_id) $$;

-- Transactions that met in a key leave a doubt whose turn it is, which a claim settles. Until then the extension
-- may hold back what is the first of its key.
CREATE FUNCTION model.stands_back(p model.pending) RETURNS boolean LANGUAGE sql AS
	$$ SELECT model.waits(p) OR model.is_in_doubt(p.outbox_id) $$;

CREATE FUNCTION model.next_of(queue text, partition_key text, sequence_id bigint) RETURNS model.pending LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.pending;
BEGIN
	SELECT x.* INTO p FROM model.pending x
	WHERE x.queue = queue AND x.partition_key = partition_key AND x.sequence_id > sequence_id
	ORDER BY x.sequence_id LIMIT 1;
	RETURN p;
END $$;

-- Whether it could be locked without waiting.
CREATE FUNCTION model.try_lock(id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM model.pending x WHERE x.outbox_id = id FOR UPDATE SKIP LOCKED;
	RETURN FOUND;
END $$;

-- Likewise, but it is not held.
CREATE FUNCTION model.is_free(id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF model.try_lock(id) THEN RAISE SQLSTATE 'LEFT0'; END IF;
	RETURN false;
EXCEPTION WHEN SQLSTATE 'LEFT0' THEN
	RETURN true;
END $$;

-- The next of the key becomes the first: its row is held, if no other session holds it.
CREATE FUNCTION model.go_on(queue text, partition_key text, sequence_id bigint) RETURNS void LANGUAGE sql AS
	$$ SELECT model.try_lock((model.next_of(queue, partition_key, sequence_id)).outbox_id) $$;

-- Waits for the row. False: its lease is another one meanwhile, and it is not held.
CREATE FUNCTION model.hold(p model.pending) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM model.pending x WHERE x.outbox_id = p.outbox_id AND x.lease_token = p.lease_token FOR UPDATE;
	IF NOT FOUND THEN RAISE SQLSTATE 'LEFT0'; END IF;
	RETURN true;
EXCEPTION WHEN SQLSTATE 'LEFT0' THEN
	RETURN false;
END $$;

-- Waits for the row, but does not hold it.
CREATE FUNCTION model.wait_for(id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM model.pending x WHERE x.outbox_id = id FOR UPDATE;
	RAISE SQLSTATE 'LEFT0';
EXCEPTION WHEN SQLSTATE 'LEFT0' THEN
	NULL;
END $$;

-- Before a message loses its lease and stays in front of its key, those that are leased behind it are given back
-- untried, while its own row is held. False: another session holds one of them, and none is given back.
CREATE FUNCTION model.release_run(p model.pending, may_wait boolean) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	behind model.pending;
	run model.pending[];
	held boolean := NOT may_wait;
BEGIN
	WHILE model.is_ordered(p) LOOP
		behind := model.next_of(p.queue, p.partition_key, p.sequence_id);
		EXIT WHEN behind.lease_token IS NULL;
		IF NOT held AND model.is_free(behind.outbox_id) THEN
			-- If not, who called looks at it again.
			EXIT WHEN NOT model.hold(p);
			held := true;
		END IF;
		run := '{}';
		WHILE behind.lease_token IS NOT NULL AND model.is_free(behind.outbox_id) LOOP
			run := run || behind;
			behind := model.next_of(p.queue, p.partition_key, behind.sequence_id);
		END LOOP;
		IF behind.lease_token IS NULL THEN
			UPDATE model.pending x SET claimed_by = NULL, claimed_at = NULL, lease_token = NULL, lease_expires_at = NULL
			FROM unnest(run) r WHERE x.outbox_id = r.outbox_id;
			EXIT;
		END IF;
		IF NOT may_wait THEN RETURN false; END IF;
		PERFORM model.wait_for(behind.outbox_id);
	END LOOP;
	RETURN true;
END $$;

-- What is leased behind the first of a key is not held by another session.
CREATE FUNCTION model.is_run_free(p model.pending) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	behind model.pending := model.next_of(p.queue, p.partition_key, p.sequence_id);
BEGIN
	RETURN NOT model.is_ordered(p) OR behind.lease_token IS NULL OR model.is_free(behind.outbox_id);
END $$;

CREATE FUNCTION model.blocks_key(p model.pending) RETURNS boolean LANGUAGE sql AS
	$$ SELECT model.is_ordered(p) AND (model.known_queue(p.queue)).on_dead_head = 'block' $$;

-- A message has ended; stood_back: out of turn. died: as a dead letter, and not by an operator.
CREATE FUNCTION model.pass_turn(p model.pending, stood_back boolean, died boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT model.is_ordered(p) OR stood_back THEN
		RETURN;
	END IF;
	IF died AND model.blocks_key(p) THEN
		INSERT INTO model.blocks VALUES (p.queue, p.partition_key, p.sequence_id, p.outbox_id);
	ELSE
		PERFORM model.go_on(p.queue, p.partition_key, p.sequence_id);
	END IF;
END $$;

CREATE FUNCTION model.finish(p model.pending, died boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	stood_back boolean := model.stands_back(p);
BEGIN
	DELETE FROM model.pending WHERE outbox_id = p.outbox_id;
	PERFORM model.pass_turn(p, stood_back, died);
END $$;

---------------------------------------------------------------- the lease

-- attempt_count only ever grows.
CREATE FUNCTION model.unlease(p model.pending, attempt_no int, due timestamptz) RETURNS void LANGUAGE sql AS $$
	UPDATE model.pending SET claimed_by = NULL, claimed_at = NULL, lease_token = NULL, lease_expires_at = NULL,
		attempt_count = greatest(attempt_count, attempt_no), next_attempt_at = due
	WHERE outbox_id = p.outbox_id
$$;

-- Records that a lease was lost. True: the message is to be tried again; false: it ended.
CREATE FUNCTION model.record_lost(p model.pending, recorded_by text, due timestamptz,
	error_code text = 'LEASE_EXPIRED', error_message text = '*') RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	number int;
BEGIN
	-- What stands back does not end before its turn.
	IF model.attempts_of(p.outbox_id) + 1 >= model.ceiling(p) AND NOT model.stands_back(p) THEN
		PERFORM model.append(p, 'FAILED', recorded_by, error_code, error_message);
		PERFORM model.finish(p, true);
		RETURN false;
	END IF;
	number := model.append(p, 'ZOMBIE_REQUEUE', recorded_by, error_code, error_message);
	PERFORM model.unlease(p, number, due);
	RETURN true;
END $$;

CREATE FUNCTION model.holds(p model.pending, lease_token uuid, worker_id text) RETURNS boolean LANGUAGE sql AS $$
	SELECT coalesce(p.lease_token = lease_token AND p.claimed_by = worker_id
		AND p.lease_expires_at > model.clock(), false)
$$;

-- The pending row of a lease, locked; P7002 without one. A stale token is refused before
-- any lock is taken, and looked at again once the lock is there.
CREATE FUNCTION model.lock_lease(outbox_id uuid, lease_token uuid, worker_id text, may_wait boolean)
RETURNS model.pending LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.pending;
BEGIN
	SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id;
	IF NOT model.holds(p, lease_token, worker_id) THEN PERFORM model.refuse('P7002', 'LEASE_LOST'); END IF;
	IF may_wait THEN
		SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id FOR UPDATE;
	ELSE
		SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id FOR UPDATE NOWAIT;
	END IF;
	IF NOT model.holds(p, lease_token, worker_id) THEN PERFORM model.refuse('P7002', 'LEASE_LOST'); END IF;
	RETURN p;
END $$;

-- A report on a message that stands behind another, by who holds its lease.
CREATE FUNCTION model.refuse_early(outbox_id uuid, lease_token uuid, worker_id text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	IF EXISTS (SELECT FROM model.pending p
		WHERE p.outbox_id = outbox_id AND model.holds(p, lease_token, worker_id) AND model.stands_back(p)) THEN
		PERFORM model.refuse('P7003', 'INVALID_STATE');
	END IF;
END $$;

---------------------------------------------------------------- backoff

CREATE FUNCTION model.backoff(queue text, attempt_no int, outbox_id uuid = NULL) RETURNS interval
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	q model.queues;
	delay interval;
	jittered interval;
BEGIN
	PERFORM model.refuse_null(queue IS NULL OR attempt_no IS NULL);
	PERFORM model.refuse_bad(attempt_no < 1);
	q := model.known_queue(queue);
	-- Beyond 2^62 any base above zero is past any cap.
	delay := least(model.seconds(q.backoff_cap), model.seconds(q.backoff_base) * 2::numeric ^ least(attempt_no - 1, 62))
		* interval '1 second';
	IF outbox_id IS NULL OR q.backoff_jitter = 0 THEN
		RETURN delay;
	END IF;
	-- Which share is taken off is the extension's choice, always the same for one
	-- message and attempt. Only a queue that nobody alters has jitter here.
	jittered := outbox.backoff(queue, attempt_no, outbox_id);
	IF jittered > delay OR jittered < delay * (1 - q.backoff_jitter) THEN
		PERFORM model.refuse('XX000', format('jittered delay %s of %s', jittered, delay));
	END IF;
	RETURN jittered;
END $$;

---------------------------------------------------------------- producer

CREATE FUNCTION model.check_message(event_type text, payload jsonb, payload_bytes bytea, queue text, headers jsonb, priority int,
	deliver_at timestamptz, max_attempts int)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_null(event_type IS NULL OR queue IS NULL OR headers IS NULL OR priority IS NULL);
	PERFORM model.refuse_bad(num_nulls(payload, payload_bytes) <> 1);
	PERFORM model.refuse_bad(event_type = '' OR jsonb_typeof(headers) <> 'object' OR priority NOT BETWEEN 0 AND 15
		OR NOT isfinite(deliver_at) OR deliver_at > model.after('3653 days') OR max_attempts < 1);
END $$;

-- What stands for "none" elsewhere is no key.
CREATE FUNCTION model.check_keys(partition_key text, idempotency_key text, event_id uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_bad(partition_key = '' OR idempotency_key = '' OR event_id = '00000000-0000-0000-0000-000000000000');
END $$;

-- An object that was encoded twice.
CREATE FUNCTION model.holds_object(payload jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_typeof(payload) = 'string' AND jsonb_typeof((payload #>> '{}')::jsonb) = 'object';
EXCEPTION WHEN invalid_text_representation THEN
	RETURN false;
END $$;

-- An open producer of a queue keeps it from being dropped; an open drop keeps producers waiting.
CREATE FUNCTION model.hold_queue(queue text) RETURNS model.queues LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_advisory_xact_lock_shared(hashtextextended(queue, 0));
	RETURN model.known_queue(queue);
END $$;

CREATE FUNCTION model.message_of(queue text, kind text, scope text, key text) RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	RETURN (SELECT k.outbox_id FROM model.keys k
		WHERE k.queue = queue AND k.kind = kind AND k.scope = scope AND k.key = key);
END $$;

-- Remembers one key for the message to be written, and returns NULL; or returns the message
-- for which it was remembered before. Waits for the end of an open transaction that has it.
CREATE FUNCTION model.remember(queue text, kind text, scope text, key text) RETURNS uuid LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO model.keys VALUES (queue, kind, scope, key) ON CONFLICT ON CONSTRAINT known DO NOTHING;
	RETURN model.message_of(queue, kind, scope, key);
END $$;

-- The message that was first with one of the keys, the idempotency_key's if both are known;
-- NULL if neither is: then both are remembered.
CREATE FUNCTION model.first_of(queue text, aggregate_id text, idempotency_key text, event_id uuid) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
	first uuid := coalesce(model.message_of(queue, 'idempotency', coalesce(aggregate_id, ''), idempotency_key),
		model.message_of(queue, 'event', '', event_id::text));
BEGIN
	IF idempotency_key IS NOT NULL AND first IS NULL THEN
		first := model.remember(queue, 'idempotency', coalesce(aggregate_id, ''), idempotency_key);
	END IF;
	IF event_id IS NOT NULL AND first IS NULL THEN
		first := model.remember(queue, 'event', '', event_id::text);
	END IF;
	IF first IS NOT NULL THEN
		DELETE FROM model.keys WHERE outbox_id IS NULL;		-- a duplicate remembers nothing
	END IF;
	RETURN first;
END $$;

-- Writes a new message. Where the queue numbers, it takes its key's next number, and
-- whoever wants the one after it waits for the end of this transaction.
CREATE FUNCTION model.write(nth int, event_type text, payload jsonb, queue text, aggregate_type text, aggregate_id text,
	partition_key text, idempotency_key text, event_id uuid, headers jsonb, routing_key text, priority int,
	deliver_at timestamptz, max_attempts int, payload_bytes bytea, content_type text, replay_of uuid, OUT id uuid, OUT number bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	now timestamptz := model.clock();
BEGIN
	-- A replay may come in the place of the dead head that blocks its key.
	DELETE FROM model.blocks b WHERE b.outbox_id = replay_of RETURNING b.sequence_id INTO number;
	IF (model.known_queue(queue)).ordering IN ('numbered', 'fifo') AND partition_key IS NOT NULL AND number IS NULL THEN
		INSERT INTO model.sequences AS s VALUES (queue, partition_key, 2)
		ON CONFLICT ON CONSTRAINT numbered DO UPDATE SET next_sequence_id = s.next_sequence_id + 1
		RETURNING s.next_sequence_id - 1 INTO number;
	END IF;
	id := model.chosen_id(nth);
	INSERT INTO model.messages VALUES (id, queue, coalesce(event_id, id), event_type, aggregate_type, aggregate_id,
		partition_key, number, idempotency_key, routing_key, priority, max_attempts, payload, headers, replay_of, now,
		payload_bytes, content_type);
	INSERT INTO model.pending VALUES (id, queue, priority, partition_key, number, 0, max_attempts,
		-- The order of a batch is the order of claims.
		-- What was due before it was said counts as due now.
		greatest(deliver_at, now + CASE WHEN replay_of IS NULL THEN nth ELSE 1 END * interval '1 microsecond'), now);
	UPDATE model.keys k SET outbox_id = id WHERE k.outbox_id IS NULL;
END $$;

CREATE FUNCTION model.enqueue_nth(nth int, event_type text, payload jsonb, queue text, aggregate_type text,
	aggregate_id text, partition_key text, idempotency_key text, event_id uuid, headers jsonb, routing_key text,
	priority int, deliver_at timestamptz, max_attempts int, payload_bytes bytea, content_type text,
	OUT outbox_id uuid, OUT sequence_id bigint, OUT created boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	PERFORM model.refuse_bad((model.known_queue(queue)).payload_kind = 'object' AND model.holds_object(payload));
	outbox_id := model.first_of(queue, aggregate_id, idempotency_key, event_id);
	created := outbox_id IS NULL;
	IF created THEN
		SELECT w.id, w.number INTO outbox_id, sequence_id FROM model.write(nth, event_type, payload, queue, aggregate_type,
			aggregate_id, partition_key, idempotency_key, event_id, headers, routing_key, priority, deliver_at,
			max_attempts, payload_bytes, content_type, NULL) w;
	ELSE
		SELECT m.sequence_id INTO sequence_id FROM model.messages m WHERE m.outbox_id = outbox_id;
	END IF;
END $$;

CREATE FUNCTION model.enqueue(event_type text, payload jsonb = NULL, queue text = 'default', aggregate_type text = NULL,
	aggregate_id text = NULL, partition_key text = NULL, idempotency_key text = NULL, event_id uuid = NULL,
	headers jsonb = '{}', routing_key text = NULL, priority int = 0, deliver_at timestamptz = NULL, max_attempts int = NULL,
	payload_bytes bytea = NULL, content_type text = NULL)
RETURNS TABLE (outbox_id uuid, sequence_id bigint, created boolean) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.check_message(event_type, payload, payload_bytes, queue, headers, priority, deliver_at, max_attempts);
	PERFORM model.check_keys(partition_key, idempotency_key, event_id);
	PERFORM model.hold_queue(queue);
	RETURN QUERY SELECT * FROM model.enqueue_nth(1, event_type, payload, queue, aggregate_type, aggregate_id,
		partition_key, idempotency_key, event_id, headers, routing_key, priority, deliver_at, max_attempts, payload_bytes,
		content_type);
END $$;

-- Means what as many calls of enqueue would mean, in input order; all elements are
-- checked before the first is written.
CREATE FUNCTION model.enqueue_batch(queue text, messages jsonb)
RETURNS TABLE (ordinality int, outbox_id uuid, sequence_id bigint, created boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	defaults jsonb := '{"headers": {}, "priority": 0}';
	names text[] := '{event_type,payload,aggregate_type,aggregate_id,partition_key,idempotency_key,event_id,headers,routing_key,priority,deliver_at,max_attempts,payload_bytes,content_type}';
	element jsonb;
	elements jsonb[] := '{}';
BEGIN
	PERFORM model.refuse_null(queue IS NULL OR messages IS NULL);
	PERFORM model.refuse_bad(jsonb_typeof(messages) <> 'array');
	FOR element IN SELECT e FROM jsonb_array_elements(messages) e LOOP
		PERFORM model.refuse_bad(jsonb_typeof(element) <> 'object');
		PERFORM model.refuse_bad(EXISTS (
			SELECT FROM jsonb_each(element) f
			WHERE f.key <> ALL (names)
				OR f.key NOT IN ('payload', 'headers', 'priority', 'max_attempts') AND jsonb_typeof(f.value) NOT IN ('string', 'null')
				OR f.key IN ('priority', 'max_attempts') AND jsonb_typeof(f.value) NOT IN ('number', 'null')
				OR f.key IN ('priority', 'max_attempts') AND jsonb_typeof(f.value) = 'number'
					AND (f.value #>> '{}')::numeric % 1 <> 0));
		-- JSON null means the argument's default; but a payload may be JSON null, where there are no bytes.
		element := defaults || (SELECT coalesce(jsonb_object_agg(f.key, f.value), '{}') FROM jsonb_each(element) f
			WHERE f.key = 'payload' AND element ->> 'payload_bytes' IS NULL OR jsonb_typeof(f.value) <> 'null');
		PERFORM model.check_message(element ->> 'event_type', element -> 'payload',
			decode(element ->> 'payload_bytes', 'base64'), queue, element -> 'headers',
			(element ->> 'priority')::int, (element ->> 'deliver_at')::timestamptz, (element ->> 'max_attempts')::int);
		PERFORM model.refuse_bad(element ->> 'deliver_at' !~ '(Z|[+-][0-9][0-9](:?[0-9][0-9])?)$');
		PERFORM model.check_keys(element ->> 'partition_key', element ->> 'idempotency_key', (element ->> 'event_id')::uuid);
		elements := elements || element;
	END LOOP;
	PERFORM model.hold_queue(queue);
	FOR i IN 1 .. cardinality(elements) LOOP
		element := elements[i];
		RETURN QUERY SELECT i, e.* FROM model.enqueue_nth(i, element ->> 'event_type', element -> 'payload', queue,
			element ->> 'aggregate_type', element ->> 'aggregate_id', element ->> 'partition_key',
			element ->> 'idempotency_key', (element ->> 'event_id')::uuid, element -> 'headers', element ->> 'routing_key',
			(element ->> 'priority')::int, (element ->> 'deliver_at')::timestamptz, (element ->> 'max_attempts')::int,
			decode(element ->> 'payload_bytes', 'base64'), element ->> 'content_type') e;
	END LOOP;
END $$;

-- Born leased, unless claim could not have leased it. Where the extension is in doubt whether it is its turn, it is not.
CREATE FUNCTION model.enqueue_and_claim(worker_id text, event_type text, payload jsonb = NULL, queue text = 'default',
	aggregate_type text = NULL, aggregate_id text = NULL, partition_key text = NULL, idempotency_key text = NULL,
	event_id uuid = NULL, headers jsonb = '{}', routing_key text = NULL, priority int = 0, max_attempts int = NULL,
	lease interval = NULL, payload_bytes bytea = NULL, content_type text = NULL)
RETURNS TABLE (outbox_id uuid, sequence_id bigint, created boolean, lease_token uuid, lease_expires_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	q model.queues;
BEGIN
	PERFORM model.refuse_null(worker_id IS NULL);
	PERFORM model.refuse_bad(worker_id = '' OR lease <= '0' OR model.too_long(lease));
	PERFORM model.check_message(event_type, payload, payload_bytes, queue, headers, priority, NULL, max_attempts);
	PERFORM model.check_keys(partition_key, idempotency_key, event_id);
	q := model.hold_queue(queue);
	SELECT * INTO outbox_id, sequence_id, created FROM model.enqueue_nth(1, event_type, payload, queue, aggregate_type,
		aggregate_id, partition_key, idempotency_key, event_id, headers, routing_key, priority, NULL, max_attempts,
		payload_bytes, content_type);
	IF created AND NOT q.paused AND NOT (SELECT model.waits(p) FROM model.pending p WHERE p.outbox_id = outbox_id)
		AND NOT model.is_in_doubt(outbox_id) AND NOT model.is_held_for_mark(queue, partition_key) THEN
		lease_token := model.chosen_token(1);
		lease_expires_at := model.after(coalesce(lease, q.lease));
		UPDATE model.pending p SET claimed_by = worker_id, claimed_at = model.clock(), lease_token = lease_token,
			lease_expires_at = lease_expires_at
		WHERE p.outbox_id = outbox_id;
	END IF;
	RETURN NEXT;
END $$;

---------------------------------------------------------------- worker

-- In REPEATABLE READ and above claim returns what the transaction's snapshot sees; the
-- driver has put that snapshot into model.snapshot. Of its own the caller sees all.
CREATE FUNCTION model.may_see(id uuid) RETURNS boolean LANGUAGE sql AS $$
	SELECT coalesce(current_setting('model.snapshot', true), '') = ''
		OR EXISTS (SELECT FROM model.messages m WHERE m.outbox_id = id AND (m.made_in = pg_current_xact_id()
			OR pg_visible_in_snapshot(m.made_in, current_setting('model.snapshot')::pg_snapshot)))
$$;

-- Leases a message, and answers.
CREATE FUNCTION model.take(id uuid, worker_id text, lease interval, nth int)
RETURNS TABLE (outbox_id uuid, queue text, event_id uuid, event_type text, aggregate_type text, aggregate_id text,
	partition_key text, sequence_id bigint, idempotency_key text, routing_key text, priority int,
	payload jsonb, headers jsonb, attempt_count int, max_attempts int, created_at timestamptz,
	lease_token uuid, lease_expires_at timestamptz, payload_bytes bytea, content_type text)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.pending;
BEGIN
	UPDATE model.pending x SET claimed_by = worker_id, claimed_at = model.clock(), lease_token = model.chosen_token(nth),
		lease_expires_at = model.after(lease)
	WHERE x.outbox_id = id RETURNING x.* INTO p;
	RETURN QUERY SELECT m.outbox_id, m.queue, m.event_id, m.event_type, m.aggregate_type, m.aggregate_id,
			m.partition_key, m.sequence_id, m.idempotency_key, m.routing_key, m.priority::int, m.payload, m.headers,
			p.attempt_count, model.ceiling(p), m.created_at, p.lease_token, p.lease_expires_at,
			m.payload_bytes, m.content_type
		FROM model.messages m WHERE m.outbox_id = id;
END $$;

-- One higher for each priority_aging that it has waited.
CREATE FUNCTION model.effective_priority(p model.pending, priority_aging interval, now timestamptz) RETURNS numeric LANGUAGE sql AS $$
	SELECT p.priority + coalesce(floor(extract(epoch FROM now - greatest(p.next_attempt_at, p.lease_expires_at)) / extract(epoch FROM priority_aging)), 0)
$$;

CREATE FUNCTION model.check_weights(queues text[], queue_weights int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF queue_weights IS NOT NULL THEN
		PERFORM model.refuse_bad(queues IS NULL OR array_ndims(queue_weights) > 1);
		PERFORM model.refuse_unlike(cardinality(queues), cardinality(queue_weights));
		PERFORM model.refuse_null(array_position(queue_weights, NULL) IS NOT NULL);
		PERFORM model.refuse_bad(0 >= ANY (queue_weights));
	END IF;
END $$;

-- The shares of a batch. Only calls in which chance has no part come up.
CREATE FUNCTION model.shares(places int, weights int[]) RETURNS int[] LANGUAGE plpgsql AS $$
DECLARE
	total int := (SELECT sum(w) FROM unnest(weights) w);
BEGIN
	IF EXISTS (SELECT FROM unnest(weights) w WHERE places * w % total <> 0) THEN RAISE 'chance decides of % in %', places, weights; END IF;
	RETURN (SELECT array_agg(places * w / total ORDER BY n) FROM unnest(weights) WITH ORDINALITY u(w, n));
END $$;

CREATE FUNCTION model.claim(worker_id text, batch_size int = 10, lease interval = NULL, queues text[] = NULL,
	wait interval = '0', queue_weights int[] = NULL)
RETURNS TABLE (outbox_id uuid, queue text, event_id uuid, event_type text, aggregate_type text, aggregate_id text,
	partition_key text, sequence_id bigint, idempotency_key text, routing_key text, priority int,
	payload jsonb, headers jsonb, attempt_count int, max_attempts int, created_at timestamptz,
	lease_token uuid, lease_expires_at timestamptz, payload_bytes bytea, content_type text)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	now timestamptz := model.clock();
	taken int := 0;
	goal int;		-- with the queue in hand
	there model.queues[] := '{}';
	weights int[] := '{}';	-- 0: there is no more to get
	shares int[];
	taken_before int;
	wanted int;
	waited uuid[];		-- as it began
	left_alone uuid[] := '{}';
	runs model.pending[];	-- the last message of each
	all_runs model.pending[] := '{}';
	found_one boolean;
	i int;
	q model.queues;
	p model.pending;
BEGIN
	PERFORM model.refuse_null(worker_id IS NULL OR batch_size IS NULL OR wait IS NULL);
	PERFORM model.refuse_bad(worker_id = '' OR batch_size < 1 OR lease <= '0' OR wait < '0' OR model.too_long(lease) OR model.too_long(wait));
	PERFORM model.check_weights(queues, queue_weights);
	PERFORM model.known_queues(coalesce(queues, '{default}'));
	FOR q IN SELECT * FROM model.known_queues(coalesce(queues, '{default}')) LOOP
		CONTINUE WHEN q.paused;
		there := there || q;
		weights := weights || coalesce(queue_weights[array_position(queues, q.queue) - array_lower(queues, 1) + array_lower(queue_weights, 1)], 1);
	END LOOP;
	-- A queue that has less than its share has no more; what is still wanted is shared by the others.
	WHILE taken < batch_size AND 0 < ANY (weights) LOOP
		shares := CASE WHEN queue_weights IS NOT NULL THEN model.shares(batch_size - taken, weights) END;
		FOR j IN 1 .. cardinality(there) LOOP
			q := there[j];
			goal := coalesce(taken + shares[j], batch_size);
			runs := ARRAY(SELECT r FROM unnest(all_runs) r WHERE (r).queue = q.queue);
			all_runs := ARRAY(SELECT r FROM unnest(all_runs) r WHERE (r).queue <> q.queue);
			waited := ARRAY(SELECT x.outbox_id FROM model.pending x WHERE x.queue = q.queue AND model.waits(x));
			WHILE taken < goal LOOP
				-- The next row that is due, and unleased or expired: greatest priority first, in it
				-- what has been claimable longest. A row that another session holds is passed by;
				-- so is one with a past that cannot be recorded, because the ledger says it ended.
				-- What has its turn only since the claim began may come with it or not, and in any round.
				BEGIN
					SELECT x.* INTO p FROM model.pending x
					WHERE x.queue = q.queue AND x.next_attempt_at <= now
						AND (x.lease_token IS NULL OR x.lease_expires_at <= now)
						AND NOT model.waits(x)
						AND (x.outbox_id <> ALL (waited) AND NOT model.is_in_doubt(x.outbox_id) OR model.chosen_rank(x.outbox_id) = taken + 1)
						AND model.may_see(x.outbox_id) AND x.outbox_id <> ALL (left_alone)
						AND NOT (model.has_ended(x.outbox_id) AND (x.lease_token IS NOT NULL OR model.is_used_up(x)))
					ORDER BY model.effective_priority(x, q.priority_aging, now) DESC, x.priority DESC, greatest(x.next_attempt_at, x.lease_expires_at), model.chosen_rank(x.outbox_id)
					LIMIT 1 FOR UPDATE SKIP LOCKED;
					found_one := FOUND;
					-- One that is left alone is not locked either.
					IF p.lease_token IS NOT NULL AND NOT model.is_run_free(p) THEN RAISE SQLSTATE 'LEFT0'; END IF;
				EXCEPTION WHEN SQLSTATE 'LEFT0' THEN
					left_alone := left_alone || p.outbox_id;
					CONTINUE;
				END;
				EXIT WHEN NOT found_one;
				IF p.lease_token IS NOT NULL THEN
					IF NOT model.release_run(p, false) THEN
						left_alone := left_alone || p.outbox_id;
						CONTINUE;
					END IF;
					CONTINUE WHEN NOT model.record_lost(p, worker_id, p.next_attempt_at);
				ELSIF model.is_used_up(p) THEN
					PERFORM model.append(p, 'FAILED', worker_id, 'RETRIES_EXHAUSTED', '*');
					PERFORM model.finish(p, true);
					CONTINUE;
				END IF;
				taken := taken + 1;
				RETURN QUERY SELECT * FROM model.take(p.outbox_id, worker_id, coalesce(lease, q.lease), taken);
				IF model.is_ordered(p) THEN runs := runs || p; END IF;
			END LOOP;
			-- Nothing else is due: what is still wanted comes from behind these, one of each key in turn.
			WHILE cardinality(runs) > 0 AND taken < goal LOOP
				wanted := goal - taken;
				taken_before := taken;
				i := 1;
				WHILE i <= cardinality(runs) AND wanted > 0 LOOP
					p := model.next_of(q.queue, runs[i].partition_key, runs[i].sequence_id);
					IF p.outbox_id IS NULL OR p.lease_token IS NOT NULL OR p.next_attempt_at > now
						OR p.attempt_count >= model.ceiling(p) OR NOT model.is_free(p.outbox_id) THEN
						runs := runs[:i - 1] || runs[i + 1:];
						CONTINUE;
					END IF;
					wanted := wanted - 1;
					IF NOT model.may_see(p.outbox_id) THEN
						runs := runs[:i - 1] || runs[i + 1:];
						CONTINUE;
					END IF;
					taken := taken + 1;
					RETURN QUERY SELECT * FROM model.take(p.outbox_id, worker_id, coalesce(lease, q.lease), taken);
					runs[i] := p;
					i := i + 1;
				END LOOP;
			END LOOP;
			all_runs := all_runs || runs;
			IF taken < goal THEN weights[j] := 0; END IF;
		END LOOP;
	END LOOP;
END $$;

-- One report; `ended` is the row of a message that ended by it. The key does not go on yet.
CREATE FUNCTION model.report(outbox_id uuid, lease_token uuid, worker_id text, state outbox.attempt_state,
	reference text, response_code text, error_code text, error_message text, latency_ms int, retry_delay interval,
	is_release boolean, OUT attempt_no int, OUT recorded outbox.attempt_state, OUT next_attempt_at timestamptz,
	OUT ended model.pending)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.pending;
BEGIN
	PERFORM model.refuse_null(outbox_id IS NULL OR lease_token IS NULL OR worker_id IS NULL OR state IS NULL);
	PERFORM model.refuse_bad(worker_id = '' OR latency_ms < 0 OR retry_delay < '0' OR model.too_long(retry_delay));
	IF state = 'ZOMBIE_REQUEUE' THEN PERFORM model.refuse('P7003', 'INVALID_STATE'); END IF;
	PERFORM model.refuse_bad(state <> 'RETRYABLE' AND retry_delay IS NOT NULL);
	SELECT x.* INTO p FROM model.pending x WHERE x.outbox_id = outbox_id;
	recorded := state;
	IF state = 'RETRYABLE' AND model.attempts_of(outbox_id) + 1 >= model.ceiling(p)
		AND NOT (is_release AND model.stands_back(p)) THEN
		recorded := 'FAILED';
		error_code := coalesce(error_code, 'RETRIES_EXHAUSTED');
	END IF;
	-- A release says nothing of the message: it may come at any time.
	IF NOT is_release THEN
		PERFORM model.refuse_early(outbox_id, lease_token, worker_id);
		IF model.holds(p, lease_token, worker_id) AND (recorded = 'RETRYABLE' OR recorded = 'FAILED' AND model.blocks_key(p)) THEN
			PERFORM model.release_run(p, true);
		END IF;
	END IF;
	p := model.lock_lease(outbox_id, lease_token, worker_id, true);
	IF NOT is_release THEN PERFORM model.refuse_early(outbox_id, lease_token, worker_id); END IF;
	IF model.has_ended(outbox_id) THEN PERFORM model.refuse('P7001', 'ALREADY_TERMINAL'); END IF;
	attempt_no := model.append(p, recorded, worker_id, error_code, error_message, reference, response_code, latency_ms);
	IF recorded = 'RETRYABLE' THEN
		next_attempt_at := model.after(coalesce(retry_delay, model.backoff(p.queue, attempt_no, outbox_id)));
		PERFORM model.unlease(p, attempt_no, next_attempt_at);
	ELSE
		DELETE FROM model.pending x WHERE x.outbox_id = p.outbox_id;
		ended := p;
	END IF;
END $$;

CREATE FUNCTION model.complete(outbox_id uuid, lease_token uuid, worker_id text, state outbox.attempt_state,
	reference text = NULL, response_code text = NULL, error_code text = NULL, error_message text = NULL,
	latency_ms int = NULL, retry_delay interval = NULL)
RETURNS TABLE (attempt_no int, recorded outbox.attempt_state, next_attempt_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	done record;
BEGIN
	SELECT r.* INTO done FROM model.report(outbox_id, lease_token, worker_id, state, reference, response_code, error_code,
		error_message, latency_ms, retry_delay, false) r;
	IF (done.ended).outbox_id IS NOT NULL THEN
		PERFORM model.pass_turn(done.ended, false, done.recorded = 'FAILED');
	END IF;
	RETURN QUERY SELECT done.attempt_no, done.recorded, done.next_attempt_at;
END $$;

CREATE FUNCTION model.refuse_unlike(arrays_length int, VARIADIC lengths int[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_bad(EXISTS (SELECT FROM unnest(lengths) l WHERE l <> arrays_length));
END $$;

CREATE FUNCTION model.check_reports(worker_id text, outbox_ids uuid[], lease_tokens uuid[], states outbox.attempt_state[],
	refs text[], response_codes text[], error_codes text[], error_messages text[], latencies_ms int[], retry_delays interval[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_null(worker_id IS NULL OR outbox_ids IS NULL OR lease_tokens IS NULL OR states IS NULL);
	PERFORM model.refuse_bad(worker_id = '' OR greatest(array_ndims(outbox_ids), array_ndims(lease_tokens),
		array_ndims(states), array_ndims(refs), array_ndims(response_codes), array_ndims(error_codes),
		array_ndims(error_messages), array_ndims(latencies_ms), array_ndims(retry_delays)) > 1);
	PERFORM model.refuse_unlike(cardinality(outbox_ids), cardinality(lease_tokens), cardinality(states), cardinality(refs),
		cardinality(response_codes), cardinality(error_codes), cardinality(error_messages), cardinality(latencies_ms),
		cardinality(retry_delays));
END $$;

-- Each item as complete would have it, in the order of outbox_id (that is the order of
-- the locks); a refused one answers with its SQLSTATE and, where the try was recorded
-- under this very token, with what was recorded. The messages of an ordered key are
-- reported in the order of the key, after those that have their turn as the batch begins.
CREATE FUNCTION model.complete_batch(worker_id text, outbox_ids uuid[], lease_tokens uuid[], states outbox.attempt_state[],
	refs text[] = NULL, response_codes text[] = NULL, error_codes text[] = NULL, error_messages text[] = NULL,
	latencies_ms int[] = NULL, retry_delays interval[] = NULL)
RETURNS TABLE (outbox_id uuid, attempt_no int, recorded outbox.attempt_state, next_attempt_at timestamptz, error text)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	attempt_nos int[] := '{}';
	recordeds outbox.attempt_state[] := '{}';
	dues timestamptz[] := '{}';
	errors text[] := '{}';
	sorted int[] := ARRAY(SELECT n FROM unnest(outbox_ids) WITH ORDINALITY u(id, n) ORDER BY id, n);
	ended model.pending[] := '{}';
	died boolean[] := '{}';
	late int[] := '{}';
	todo int[];
	done record;
	last model.pending;
	behind model.pending;
	last_died boolean;
	pass int;
	i int;
BEGIN
	PERFORM model.check_reports(worker_id, outbox_ids, lease_tokens, states, refs, response_codes, error_codes, error_messages,
		latencies_ms, retry_delays);
	-- Pass 1: those that have their turn. Pass 2: those behind them. Pass 3: the rest is refused.
	todo := sorted;
	pass := 1;
	LOOP
		WHILE cardinality(todo) > 0 LOOP
			i := todo[1];
			todo := todo[2:];
			IF pass = 1 AND EXISTS (SELECT FROM model.pending x, unnest(ended) e
				WHERE x.outbox_id = outbox_ids[i] AND model.holds(x, lease_tokens[i], worker_id) AND model.is_ordered(x)
					AND e.queue = x.queue AND e.partition_key = x.partition_key AND e.sequence_id < x.sequence_id) THEN
				late := late || i;
				CONTINUE;
			END IF;
			BEGIN
				SELECT r.* INTO done FROM model.report(outbox_ids[i], lease_tokens[i], worker_id, states[i], refs[i],
					response_codes[i], error_codes[i], error_messages[i], latencies_ms[i], retry_delays[i], false) r;
				dues[i] := done.next_attempt_at;
				attempt_nos[i] := done.attempt_no;
				recordeds[i] := done.recorded;
				IF (done.ended).outbox_id IS NOT NULL THEN
					ended := ended || done.ended;
					died := died || (done.recorded = 'FAILED');
				END IF;
			EXCEPTION WHEN OTHERS THEN
				IF pass = 1 AND SQLSTATE = 'P7003' AND states[i] <> 'ZOMBIE_REQUEUE' THEN
					late := late || i;
					CONTINUE;
				END IF;
				errors[i] := SQLSTATE;
				IF SQLSTATE = 'P7002' THEN
					SELECT a.attempt_no, a.state INTO done FROM model.attempts a
					WHERE a.outbox_id = outbox_ids[i] AND a.lease_token = lease_tokens[i];
					attempt_nos[i] := done.attempt_no;
					recordeds[i] := done.state;
				ELSIF SQLSTATE = 'P7001' THEN
					-- It held the lease: its row stays locked, as those of the others do.
					PERFORM FROM model.pending x WHERE x.outbox_id = outbox_ids[i] FOR UPDATE;
				END IF;
			END;
		END LOOP;
		pass := 2;
		-- The keys of those that ended go on: to the next report, or else to the next claim.
		IF cardinality(ended) > 0 THEN
			last := ended[1];
			last_died := died[1];
			ended := ended[2:];
			died := died[2:];
			behind := model.next_of(last.queue, last.partition_key, last.sequence_id);
			SELECT l INTO i FROM unnest(late) WITH ORDINALITY u(l, n) WHERE outbox_ids[l] = behind.outbox_id ORDER BY n LIMIT 1;
			IF i IS NOT NULL AND model.is_ordered(last) AND model.try_lock(behind.outbox_id)
				AND NOT (last_died AND model.blocks_key(last)) THEN
				todo := ARRAY[i];
				late := array_remove(late, i);
			END IF;
			PERFORM model.pass_turn(last, false, last_died);
		ELSE
			EXIT WHEN cardinality(late) = 0;
			todo := late[1:1];
			late := late[2:];
		END IF;
	END LOOP;
	RETURN QUERY SELECT outbox_ids[n], attempt_nos[n], recordeds[n], dues[n], errors[n]
		FROM generate_series(1, cardinality(outbox_ids)) n;
END $$;

-- complete_batch, then claim, each as it is alone. What is wrong with the arguments of the
-- claim is told before anything is written; a queue that is dropped while the reports wait is
-- passed by; and the claim sees the messages that the statement saw as it began.
CREATE FUNCTION model.complete_and_claim(worker_id text, outbox_ids uuid[], lease_tokens uuid[], states outbox.attempt_state[],
	refs text[] = NULL, response_codes text[] = NULL, error_codes text[] = NULL, error_messages text[] = NULL,
	latencies_ms int[] = NULL, retry_delays interval[] = NULL,
	batch_size int = 10, lease interval = NULL, queues text[] = NULL, queue_weights int[] = NULL)
RETURNS TABLE (kind text, outbox_id uuid, attempt_no int, recorded outbox.attempt_state, next_attempt_at timestamptz, error text,
	queue text, event_id uuid, event_type text, aggregate_type text, aggregate_id text,
	partition_key text, sequence_id bigint, idempotency_key text, routing_key text, priority int,
	payload jsonb, headers jsonb, attempt_count int, max_attempts int, created_at timestamptz,
	lease_token uuid, lease_expires_at timestamptz, payload_bytes bytea, content_type text)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	snapshot text := coalesce(current_setting('model.snapshot', true), '');
	there text[];
	their_weights int[];
BEGIN
	PERFORM model.check_reports(worker_id, outbox_ids, lease_tokens, states, refs, response_codes, error_codes, error_messages,
		latencies_ms, retry_delays);
	PERFORM model.refuse_null(batch_size IS NULL);
	PERFORM model.refuse_bad(batch_size < 1 OR lease <= '0' OR model.too_long(lease));
	PERFORM model.check_weights(queues, queue_weights);
	PERFORM model.known_queues(coalesce(queues, '{default}'));
	IF snapshot = '' THEN
		PERFORM set_config('model.snapshot', pg_current_snapshot()::text, true);
	END IF;
	RETURN QUERY SELECT 'completed', c.*, NULL::text, NULL::uuid, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::text,
			NULL::text, NULL::int, NULL::jsonb, NULL::jsonb, NULL::int, NULL::int, NULL::timestamptz, NULL::uuid, NULL::timestamptz,
			NULL::bytea, NULL::text
		FROM model.complete_batch(worker_id, outbox_ids, lease_tokens, states, refs, response_codes, error_codes, error_messages,
			latencies_ms, retry_delays) c;
	SELECT coalesce(array_agg(u.name ORDER BY u.n), '{}'), array_agg(u.weight ORDER BY u.n) FILTER (WHERE queue_weights IS NOT NULL)
		INTO there, their_weights FROM unnest(coalesce(queues, '{default}'), queue_weights) WITH ORDINALITY u(name, weight, n)
		WHERE EXISTS (SELECT FROM model.queues q WHERE q.queue = u.name);
	RETURN QUERY SELECT 'claimed', c.outbox_id, NULL::int, NULL::outbox.attempt_state, NULL::timestamptz, NULL::text,
			c.queue, c.event_id, c.event_type, c.aggregate_type, c.aggregate_id, c.partition_key, c.sequence_id, c.idempotency_key,
			c.routing_key, c.priority, c.payload, c.headers, c.attempt_count, c.max_attempts, c.created_at, c.lease_token, c.lease_expires_at,
			c.payload_bytes, c.content_type
		FROM model.claim(worker_id, batch_size, lease, there, queue_weights => their_weights) c;
	PERFORM set_config('model.snapshot', snapshot, true);
END $$;

-- renew and release, for one item: its answer, or its error. They never wait.
CREATE FUNCTION model.renew_one(worker_id text, id uuid, token uuid, lease interval, OUT expires timestamptz, OUT error text)
LANGUAGE plpgsql AS $$
DECLARE
	p model.pending;
BEGIN
	PERFORM model.refuse_null(id IS NULL OR token IS NULL);
	p := model.lock_lease(id, token, worker_id, false);
	expires := greatest(p.lease_expires_at, model.after(coalesce(lease, (model.known_queue(p.queue)).lease)));
	UPDATE model.pending SET lease_expires_at = expires WHERE outbox_id = id;
EXCEPTION WHEN OTHERS THEN
	error := SQLSTATE;
END $$;

-- Given back untried; but a release beyond max_releases is a try, as RETRYABLE with the longer delay would be.
CREATE FUNCTION model.release_one(worker_id text, id uuid, token uuid, delay interval, OUT due timestamptz, OUT error text)
LANGUAGE plpgsql AS $$
DECLARE
	p model.pending;
	q model.queues;
	stood_back boolean;
	done record;
BEGIN
	PERFORM model.refuse_null(id IS NULL OR token IS NULL);
	p := model.lock_lease(id, token, worker_id, false);
	q := model.known_queue(p.queue);
	IF p.release_count >= q.max_releases THEN
		stood_back := model.stands_back(p);
		SELECT r.* INTO done FROM model.report(id, token, worker_id, 'RETRYABLE', NULL, NULL, 'RELEASES_EXHAUSTED', NULL, NULL,
			greatest(delay, model.backoff(p.queue, model.attempts_of(id) + 1, id)), true) r;
		due := done.next_attempt_at;
		UPDATE model.pending SET release_count = 0 WHERE outbox_id = id;
		IF (done.ended).outbox_id IS NOT NULL THEN
			PERFORM model.pass_turn(done.ended, stood_back, true);
		END IF;
	ELSE
		due := model.after(delay);
		PERFORM model.unlease(p, 0, due);
		UPDATE model.pending SET release_count = release_count + 1 WHERE outbox_id = id;
	END IF;
EXCEPTION WHEN OTHERS THEN
	error := SQLSTATE;
	due := NULL;
	IF SQLSTATE = 'P7001' THEN
		PERFORM FROM model.pending x WHERE x.outbox_id = id FOR UPDATE;		-- as in complete_batch
	END IF;
END $$;

CREATE FUNCTION model.renew(worker_id text, outbox_ids uuid[], lease_tokens uuid[], lease interval = NULL)
RETURNS TABLE (outbox_id uuid, lease_expires_at timestamptz, error text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_null(worker_id IS NULL OR outbox_ids IS NULL OR lease_tokens IS NULL);
	PERFORM model.refuse_bad(worker_id = '' OR lease <= '0' OR model.too_long(lease) OR greatest(array_ndims(outbox_ids), array_ndims(lease_tokens)) > 1);
	PERFORM model.refuse_unlike(cardinality(outbox_ids), cardinality(lease_tokens));
	FOR i IN 1 .. cardinality(outbox_ids) LOOP
		outbox_id := outbox_ids[i];
		SELECT * INTO lease_expires_at, error FROM model.renew_one(worker_id, outbox_ids[i], lease_tokens[i], lease);
		RETURN NEXT;
	END LOOP;
END $$;

CREATE FUNCTION model.release(worker_id text, outbox_ids uuid[], lease_tokens uuid[], delay interval = '0')
RETURNS TABLE (outbox_id uuid, next_attempt_at timestamptz, error text) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	released uuid[] := '{}';
	p model.pending;
BEGIN
	PERFORM model.refuse_null(worker_id IS NULL OR outbox_ids IS NULL OR lease_tokens IS NULL OR delay IS NULL);
	PERFORM model.refuse_bad(worker_id = '' OR delay < '0' OR model.too_long(delay) OR greatest(array_ndims(outbox_ids), array_ndims(lease_tokens)) > 1);
	PERFORM model.refuse_unlike(cardinality(outbox_ids), cardinality(lease_tokens));
	FOR i IN 1 .. cardinality(outbox_ids) LOOP
		outbox_id := outbox_ids[i];
		SELECT * INTO next_attempt_at, error FROM model.release_one(worker_id, outbox_ids[i], lease_tokens[i], delay);
		IF error IS NULL THEN released := released || outbox_id; END IF;
		RETURN NEXT;
	END LOOP;
	-- What is leased behind them is given back as well.
	FOREACH outbox_id IN ARRAY released LOOP
		SELECT x.* INTO p FROM model.pending x WHERE x.outbox_id = outbox_id;
		IF FOUND AND NOT model.release_run(p, false) THEN PERFORM model.refuse('55P03', 'one behind it is held'); END IF;
	END LOOP;
END $$;

-- Which of the expired leases come first is not said. One that cannot be repaired,
-- because the ledger says that the message ended, stops no other. The lease of a message that
-- stands back hung on that of the first of its key: it ends untried, and does not count.
CREATE FUNCTION model.repair_expired_leases(batch_size int = 100, worker_id text = 'outbox repair', queues text[] = NULL)
RETURNS TABLE (outbox_id uuid, attempt_no int, state outbox.attempt_state, lost_by text) LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	now timestamptz := model.clock();
	repaired int := 0;
	latest timestamptz := 'infinity';
	left_alone uuid[] := '{}';
	found_one boolean;
	p model.pending;
BEGIN
	PERFORM model.refuse_null(worker_id IS NULL OR batch_size IS NULL);
	PERFORM model.refuse_bad(worker_id = '' OR batch_size < 1);
	IF queues IS NOT NULL THEN PERFORM model.known_queues(queues); END IF;
	WHILE repaired < batch_size LOOP
		BEGIN
			SELECT x.* INTO p FROM model.pending x
			WHERE x.lease_expires_at <= now AND (queues IS NULL OR x.queue = ANY (queues)) AND NOT model.has_ended(x.outbox_id)
				AND NOT model.waits(x) AND (NOT model.is_in_doubt(x.outbox_id) OR model.chosen_rank(x.outbox_id) IS NOT NULL)
				AND x.outbox_id <> ALL (left_alone)
			ORDER BY model.chosen_rank(x.outbox_id)
			LIMIT 1 FOR UPDATE SKIP LOCKED;
			found_one := FOUND;
			IF found_one AND NOT model.is_run_free(p) THEN RAISE SQLSTATE 'LEFT0'; END IF;
		EXCEPTION WHEN SQLSTATE 'LEFT0' THEN
			left_alone := left_alone || p.outbox_id;
			CONTINUE;
		END;
		EXIT WHEN NOT found_one;
		IF NOT model.release_run(p, false) THEN
			left_alone := left_alone || p.outbox_id;
			CONTINUE;
		END IF;
		PERFORM model.record_lost(p, worker_id, model.after_repair(p.next_attempt_at, (model.known_queue(p.queue)).repair_delay));
		repaired := repaired + 1;
		IF repaired = batch_size THEN latest := p.lease_expires_at; END IF;
		RETURN QUERY SELECT a.outbox_id, a.attempt_no, a.state, a.worker_id FROM model.attempts a
			WHERE a.outbox_id = p.outbox_id ORDER BY a.attempt_no DESC LIMIT 1;
	END LOOP;
	FOR p IN SELECT x.* FROM model.pending x
		WHERE x.lease_expires_at <= least(now, latest) AND (queues IS NULL OR x.queue = ANY (queues)) AND model.stands_back(x)
		FOR UPDATE SKIP LOCKED LOOP
		IF model.release_run(p, false) THEN
			PERFORM model.unlease(p, 0, p.next_attempt_at);
		END IF;
	END LOOP;
END $$;

---------------------------------------------------------------- operator

CREATE FUNCTION model.check_settings(max_attempts int, lease interval, backoff_base interval, backoff_cap interval,
	backoff_jitter real, repair_delay interval, ordering text, on_dead_head text, validator text, max_in_flight int,
	payload_kind text, max_releases int, rate_limit float8, rate_burst int, max_in_flight_per_key int, fair_by text,
	priority_aging interval, handler text, handler_timeout interval)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_bad(model.too_long(greatest(lease, backoff_base, backoff_cap, repair_delay, priority_aging, handler_timeout)));
	PERFORM model.refuse_bad(max_attempts < 1 OR lease <= '0' OR backoff_base < '0' OR backoff_cap < '0'
		OR repair_delay < '0' OR backoff_jitter NOT BETWEEN 0 AND 1
		OR ordering NOT IN ('none', 'numbered', 'fifo') OR on_dead_head NOT IN ('continue', 'block')
		OR payload_kind NOT IN ('object', 'any') OR max_releases < 0 OR max_in_flight < 1
		OR rate_limit <= 0 OR rate_limit >= 'Infinity' OR rate_burst < 1 OR max_in_flight_per_key < 1
		OR fair_by NOT IN ('', 'partition_key') OR priority_aging < '0' OR handler_timeout <= '0');
	PERFORM model.refuse_bad(priority_aging > '0' AND (max_in_flight_per_key > 0 OR fair_by <> ''));
	-- No database of this test has a function that could be one.
	IF validator <> '' THEN
		PERFORM model.refuse('42883', 'no such validator');
	END IF;
	IF handler <> '' THEN
		PERFORM model.refuse('42883', 'no such handler');
	END IF;
END $$;

-- NULL and the empty string are none. Chains end after one step.
CREATE FUNCTION model.check_dead_letter_queue(queue text, dead_letter_queue text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	IF dead_letter_queue <> '' THEN
		PERFORM model.refuse_bad(dead_letter_queue = queue);
		PERFORM model.refuse_bad((model.known_queue(dead_letter_queue)).dead_letter_queue IS NOT NULL
			OR EXISTS (SELECT FROM model.queues q WHERE q.dead_letter_queue = queue));
	END IF;
END $$;

-- No queue of this test protects: what it stores would not be equal.
CREATE FUNCTION model.check_protect(protect jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_bad(protect <> '{}');
END $$;

CREATE FUNCTION model.create_queue(queue text, max_attempts int = 20, lease interval = '30 seconds',
	backoff_base interval = '1 second', backoff_cap interval = '15 minutes', backoff_jitter real = 0.2,
	repair_delay interval = '1 second', ordering text = 'none', on_dead_head text = 'continue',
	validator text = NULL, paused boolean = false, max_in_flight int = NULL, payload_kind text = 'object',
	max_releases int = NULL, rate_limit float8 = NULL, rate_burst int = NULL, max_in_flight_per_key int = NULL,
	fair_by text = NULL, priority_aging interval = NULL, handler text = NULL, handler_timeout interval = '30 seconds',
	dead_letter_queue text = NULL, protect jsonb = NULL, reveal_on_claim boolean = false, audit_events boolean = false)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_null(num_nulls(queue, lease, backoff_base, backoff_cap, backoff_jitter, repair_delay, ordering,
		on_dead_head, paused, payload_kind, handler_timeout, reveal_on_claim, audit_events) > 0);
	PERFORM model.check_protect(protect);
	PERFORM model.refuse_bad(octet_length(queue) NOT BETWEEN 1 AND 63);
	PERFORM model.check_settings(max_attempts, lease, backoff_base, backoff_cap, backoff_jitter, repair_delay, ordering,
		on_dead_head, validator, max_in_flight, payload_kind, max_releases, rate_limit, rate_burst, max_in_flight_per_key,
		fair_by, priority_aging, handler, handler_timeout);
	PERFORM model.check_dead_letter_queue(queue, dead_letter_queue);
	INSERT INTO model.queues VALUES (queue, max_attempts, lease, backoff_base, backoff_cap, backoff_jitter, repair_delay,
		ordering, on_dead_head, validator, paused, max_in_flight, model.clock(), payload_kind, max_releases,
		rate_limit, rate_burst, max_in_flight_per_key, nullif(fair_by, ''), nullif(priority_aging, '0'), nullif(handler, ''), handler_timeout,
		nullif(dead_letter_queue, ''), nullif(protect, '{}'), reveal_on_claim, audit_events) ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN PERFORM model.refuse('42710', 'it exists'); END IF;
END $$;

-- Of a queue without pending messages; producers are shut out to the end of the transaction.
CREATE FUNCTION model.empty_queue(queue text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	IF NOT pg_try_advisory_xact_lock(hashtextextended(queue, 0))
		OR EXISTS (SELECT FROM model.pending p WHERE p.queue = queue) THEN
		PERFORM model.refuse('55006', 'pending messages, committed or not yet');
	END IF;
	DELETE FROM model.blocks b WHERE b.queue = queue;
END $$;

-- NULL keeps a setting; where NULL is a value, -1 keeps it; an empty fair_by and a priority_aging of 0 are none.
CREATE FUNCTION model.alter_queue(queue text, max_attempts int = -1, lease interval = NULL, backoff_base interval = NULL,
	backoff_cap interval = NULL, backoff_jitter real = NULL, repair_delay interval = NULL, ordering text = NULL,
	on_dead_head text = NULL, validator text = NULL, paused boolean = NULL, max_in_flight int = -1,
	payload_kind text = NULL, max_releases int = -1, rate_limit float8 = -1, rate_burst int = -1,
	max_in_flight_per_key int = -1, fair_by text = NULL, priority_aging interval = NULL, handler text = NULL,
	handler_timeout interval = NULL, dead_letter_queue text = NULL, protect jsonb = NULL, reveal_on_claim boolean = NULL, audit_events boolean = NULL)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	PERFORM model.refuse_null(queue IS NULL);
	PERFORM model.check_protect(protect);
	PERFORM model.known_queue(queue);
	PERFORM model.check_settings(nullif(max_attempts, -1), lease, backoff_base, backoff_cap, backoff_jitter, repair_delay,
		ordering, on_dead_head, validator, nullif(max_in_flight, -1), payload_kind, nullif(max_releases, -1),
		nullif(rate_limit, -1), nullif(rate_burst, -1), nullif(max_in_flight_per_key, -1), fair_by,
		coalesce(priority_aging, (model.known_queue(queue)).priority_aging), handler, handler_timeout);
	PERFORM model.check_dead_letter_queue(queue, dead_letter_queue);
	IF (ordering = 'fifo') <> ((model.known_queue(queue)).ordering = 'fifo') THEN PERFORM model.empty_queue(queue); END IF;
	UPDATE model.queues q SET
		max_attempts = CASE max_attempts WHEN -1 THEN q.max_attempts ELSE max_attempts END,
		max_releases = CASE max_releases WHEN -1 THEN q.max_releases ELSE max_releases END,
		lease = coalesce(lease, q.lease), backoff_base = coalesce(backoff_base, q.backoff_base),
		backoff_cap = coalesce(backoff_cap, q.backoff_cap), backoff_jitter = coalesce(backoff_jitter, q.backoff_jitter),
		repair_delay = coalesce(repair_delay, q.repair_delay), ordering = coalesce(ordering, q.ordering),
		on_dead_head = coalesce(on_dead_head, q.on_dead_head), paused = coalesce(paused, q.paused),
		payload_kind = coalesce(payload_kind, q.payload_kind),
		rate_limit = CASE rate_limit WHEN -1 THEN q.rate_limit ELSE rate_limit END,
		rate_burst = CASE rate_burst WHEN -1 THEN q.rate_burst ELSE rate_burst END,
		max_in_flight_per_key = CASE max_in_flight_per_key WHEN -1 THEN q.max_in_flight_per_key ELSE max_in_flight_per_key END,
		fair_by = nullif(coalesce(fair_by, q.fair_by), ''),
		priority_aging = nullif(coalesce(priority_aging, q.priority_aging), '0'),
		handler_timeout = coalesce(handler_timeout, q.handler_timeout),
		dead_letter_queue = nullif(coalesce(dead_letter_queue, q.dead_letter_queue), ''),
		protect = nullif(coalesce(protect, q.protect), '{}'),
		reveal_on_claim = coalesce(reveal_on_claim, q.reveal_on_claim),
		audit_events = coalesce(audit_events, q.audit_events)
	WHERE q.queue = queue;
	IF NOT FOUND THEN PERFORM model.refuse('P7004', 'QUEUE_NOT_FOUND'); END IF;	-- dropped while this waited
END $$;

CREATE FUNCTION model.pause(queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.alter_queue(queue, paused => true);
END $$;

CREATE FUNCTION model.resume(queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.alter_queue(queue, paused => false);
END $$;

CREATE FUNCTION model.drop_queue(queue text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	PERFORM model.refuse_null(queue IS NULL);
	PERFORM model.known_queue(queue);
	PERFORM model.empty_queue(queue);
	IF EXISTS (SELECT FROM model.queues q WHERE q.dead_letter_queue = queue) THEN
		PERFORM model.refuse('2BP01', 'a dead_letter_queue');
	END IF;
	DELETE FROM model.queues q WHERE q.queue = queue;
END $$;

CREATE FUNCTION model.unblock(queue text, partition_key text) RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	b model.blocks;
BEGIN
	PERFORM model.refuse_null(queue IS NULL OR partition_key IS NULL);
	PERFORM model.refuse_bad(partition_key = '');
	PERFORM model.known_queue(queue);
	DELETE FROM model.blocks x WHERE x.queue = queue AND x.partition_key = partition_key RETURNING x.* INTO b;
	IF NOT FOUND THEN PERFORM model.refuse('P7005', 'NOT_PENDING'); END IF;
	PERFORM model.go_on(queue, partition_key, b.sequence_id);
	RETURN b.outbox_id;
END $$;

CREATE FUNCTION model.refuse_cancel(p model.pending, force boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p.outbox_id IS NULL THEN PERFORM model.refuse('P7005', 'NOT_PENDING'); END IF;
	IF p.lease_expires_at > model.clock() AND NOT force THEN PERFORM model.refuse('55006', 'a live lease'); END IF;
END $$;

-- As with a lease: what can be refused is refused before the lock, and looked at again after it.
CREATE FUNCTION model.cancel(outbox_id uuid, reason text, force boolean = false) RETURNS int LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.pending;
	number int;
BEGIN
	PERFORM model.refuse_null(outbox_id IS NULL OR reason IS NULL OR force IS NULL);
	PERFORM model.refuse_bad(reason = '');
	SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id;
	PERFORM model.refuse_cancel(p, force);
	SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id FOR UPDATE;
	PERFORM model.refuse_cancel(p, force);
	IF model.has_ended(outbox_id) THEN PERFORM model.refuse('P7001', 'ALREADY_TERMINAL'); END IF;
	number := model.append(p, 'FAILED', current_user, 'CANCELLED', reason);
	PERFORM model.finish(p, false);
	RETURN number;
END $$;

CREATE FUNCTION model.refuse_break(p model.pending) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p.outbox_id IS NULL THEN PERFORM model.refuse('P7005', 'NOT_PENDING'); END IF;
	IF p.lease_token IS NULL THEN PERFORM model.refuse('55000', 'not leased'); END IF;
END $$;

-- As if the lease had expired now and were repaired; also one that has expired.
CREATE FUNCTION model.break_lease(outbox_id uuid, reason text) RETURNS int LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.pending;
	delay interval;
BEGIN
	PERFORM model.refuse_null(outbox_id IS NULL OR reason IS NULL);
	PERFORM model.refuse_bad(reason = '');
	SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id;
	PERFORM model.refuse_break(p);
	delay := (model.known_queue(p.queue)).repair_delay;
	PERFORM model.release_run(p, true);
	SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id FOR UPDATE;
	PERFORM model.refuse_break(p);
	-- It may be another lease than before the wait.
	PERFORM model.release_run(p, true);
	IF model.has_ended(outbox_id) THEN PERFORM model.refuse('P7001', 'ALREADY_TERMINAL'); END IF;
	PERFORM model.record_lost(p, current_user, model.after_repair(p.next_attempt_at, delay), 'LEASE_BROKEN', reason);
	RETURN model.attempts_of(outbox_id);
END $$;

CREATE FUNCTION model.refuse_reschedule(p model.pending) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p.outbox_id IS NULL THEN PERFORM model.refuse('P7005', 'NOT_PENDING'); END IF;
	IF p.lease_token IS NOT NULL THEN PERFORM model.refuse('55006', 'a lease, live or expired'); END IF;
END $$;

CREATE FUNCTION model.reschedule(outbox_id uuid, next_attempt_at timestamptz = NULL, priority int = NULL) RETURNS timestamptz
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	p model.pending;
BEGIN
	PERFORM model.refuse_null(outbox_id IS NULL);
	PERFORM model.refuse_bad(num_nulls(next_attempt_at, priority) = 2 OR NOT isfinite(next_attempt_at)
		OR next_attempt_at > model.after('3653 days') OR priority NOT BETWEEN 0 AND 15);
	SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id;
	PERFORM model.refuse_reschedule(p);
	SELECT * INTO p FROM model.pending x WHERE x.outbox_id = outbox_id FOR UPDATE;
	PERFORM model.refuse_reschedule(p);
	-- Never due before it was said.
	IF next_attempt_at IS NOT NULL THEN p.next_attempt_at := greatest(next_attempt_at, p.created_at); END IF;
	UPDATE model.pending x SET next_attempt_at = p.next_attempt_at, priority = coalesce(priority, p.priority)
	WHERE x.outbox_id = outbox_id;
	RETURN p.next_attempt_at;
END $$;

CREATE FUNCTION model.replay_nth(nth int, outbox_id uuid, deliver_at timestamptz) RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	m model.messages;
BEGIN
	PERFORM model.refuse_null(outbox_id IS NULL);
	IF NOT EXISTS (SELECT FROM model.attempts a WHERE a.outbox_id = outbox_id AND a.state = 'FAILED') THEN
		PERFORM model.refuse('P7005', 'NOT_PENDING');
	END IF;
	PERFORM model.refuse_bad(NOT isfinite(deliver_at));
	INSERT INTO model.replays VALUES (outbox_id) ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN PERFORM model.refuse('P7005', 'NOT_PENDING'); END IF;
	SELECT * INTO m FROM model.messages x WHERE x.outbox_id = outbox_id;
	PERFORM model.hold_queue(m.queue);
	-- Not the idempotency key: a replay is no repetition of what was said.
	RETURN (SELECT w.id FROM model.write(nth, m.event_type, m.payload, m.queue, m.aggregate_type, m.aggregate_id,
		m.partition_key, NULL, m.event_id, m.headers, m.routing_key, m.priority, deliver_at, m.max_attempts, m.payload_bytes,
		m.content_type, outbox_id) w);
END $$;

CREATE FUNCTION model.replay(outbox_id uuid, deliver_at timestamptz = NULL) RETURNS uuid LANGUAGE sql AS
	$$ SELECT model.replay_nth(1, outbox_id, deliver_at) $$;

---------------------------------------------------------------- many messages

-- One message of many: what was found, and what became of it, NULL = nothing yet.
CREATE TYPE model.one_of_many AS (outbox_id uuid, event text, last_error text, key text, number bigint, fate text);

CREATE FUNCTION model.check_many(queue text, reason text, batch_size int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM model.refuse_null(queue IS NULL OR reason IS NULL OR batch_size IS NULL);
	PERFORM model.refuse_bad(reason = '' OR batch_size < 1 OR batch_size > current_setting('outbox.max_batch')::int);
	PERFORM model.known_queue(queue);
END $$;

CREATE FUNCTION model.last_error(id uuid) RETURNS text LANGUAGE sql AS
	$$ SELECT error_code FROM model.attempts WHERE outbox_id = id ORDER BY attempt_no DESC LIMIT 1 $$;

-- The test has so few messages that a call finds them all: more is false.
CREATE FUNCTION model.sum_up(many model.one_of_many[])
RETURNS TABLE (event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid) LANGUAGE sql AS $$
	SELECT m.event, m.last_error, count(*), count(*) FILTER (WHERE m.fate = 'done'), count(*) FILTER (WHERE m.fate <> 'done'),
		count(*) FILTER (WHERE m.fate IS NULL), false, string_agg(DISTINCT nullif(m.fate, 'done'), ', '),
		(array_agg(m.outbox_id ORDER BY m.outbox_id))[1]
	FROM unnest(many) m GROUP BY 1, 2 ORDER BY 1, 2
$$;

-- The oldest first; what another transaction has does not come up here.
CREATE FUNCTION model.cancel_many(queue text, reason text, event_type text = NULL, error_code text = NULL, since timestamptz = NULL,
	until timestamptz = NULL, batch_size int = 1000, dry_run boolean = true, force boolean = false)
RETURNS TABLE (event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	many model.one_of_many[];
	p model.pending;
	wanted int := CASE WHEN dry_run IS FALSE THEN batch_size ELSE 0 END;
BEGIN
	PERFORM model.check_many(queue, reason, batch_size);
	SELECT array_agg((x.outbox_id, m.event_type, model.last_error(x.outbox_id), NULL, NULL, NULL)::model.one_of_many ORDER BY x.outbox_id)
	INTO many FROM model.pending x JOIN model.messages m USING (outbox_id)
	WHERE x.queue = queue AND m.event_type = coalesce(event_type, m.event_type)
		AND (error_code IS NULL OR model.last_error(x.outbox_id) = error_code)
		AND x.created_at >= coalesce(since, '-infinity') AND x.created_at < coalesce(until, 'infinity');
	FOR i IN 1 .. coalesce(cardinality(many), 0) LOOP
		SELECT * INTO p FROM model.pending x WHERE x.outbox_id = many[i].outbox_id;
		IF p.lease_expires_at > model.clock() AND force IS NOT TRUE THEN
			many[i].fate := 'leased';
		ELSIF wanted > 0 AND model.has_ended(p.outbox_id) THEN
			many[i].fate := 'P7001';
			PERFORM FROM model.pending x WHERE x.outbox_id = p.outbox_id FOR UPDATE;
		ELSIF wanted > 0 THEN
			PERFORM model.cancel(p.outbox_id, reason, coalesce(force, false));
			many[i].fate := 'done';
			wanted := wanted - 1;
		END IF;
	END LOOP;
	RETURN QUERY SELECT * FROM model.sum_up(many);
END $$;

CREATE FUNCTION model.purge(queue text, queue_again text = NULL, batch_size int = 1000, force boolean = false)
RETURNS TABLE (event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
	PERFORM model.refuse_null(queue IS NULL);
	PERFORM model.refuse_bad(queue_again <> queue);
	RETURN QUERY SELECT * FROM model.cancel_many(queue, 'purged', batch_size => batch_size, dry_run => queue_again IS NULL, force => force);
END $$;

-- The oldest of those that are the first of their keys, and so on.
CREATE FUNCTION model.replay_many(queue text, event_type text = NULL, error_code text = NULL, since timestamptz = NULL,
	until timestamptz = NULL, batch_size int = 1000, dry_run boolean = true, again boolean = false)
RETURNS TABLE (event text, last_error text, matching bigint, done bigint, skipped bigint, remaining bigint, more boolean, why text, sample uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
	many model.one_of_many[];
	i int;
	done int := 0;
BEGIN
	PERFORM model.check_many(queue, 'replayed', batch_size);
	SELECT array_agg((d.outbox_id, m.event_type, d.error_code, m.partition_key, m.sequence_id,
		CASE WHEN d.replay_of IS NOT NULL AND again IS NOT TRUE THEN 'a replay' END)::model.one_of_many ORDER BY d.outbox_id)
	INTO many FROM model.dead_letters d JOIN model.messages m USING (outbox_id)
	WHERE d.queue = queue AND m.event_type = coalesce(event_type, m.event_type)
		AND coalesce(d.error_code = error_code, error_code IS NULL AND d.error_code IS DISTINCT FROM 'CANCELLED')
		AND d.died_at >= coalesce(since, '-infinity') AND d.died_at < coalesce(until, 'infinity');
	WHILE dry_run IS FALSE AND done < batch_size LOOP
		SELECT c.ordinality INTO i FROM unnest(many) WITH ORDINALITY c
		WHERE c.fate IS NULL AND NOT EXISTS (SELECT FROM unnest(many) b WHERE b.fate IS NULL AND b.key = c.key AND b.number < c.number)
		ORDER BY c.outbox_id LIMIT 1;
		EXIT WHEN NOT FOUND;
		done := done + 1;
		PERFORM model.replay_nth(done, many[i].outbox_id, NULL);
		many[i].fate := 'done';
	END LOOP;
	RETURN QUERY SELECT * FROM model.sum_up(many);
END $$;

---------------------------------------------------------------- what CREATE EXTENSION made

INSERT INTO model.queues VALUES ('default', 20, '30 seconds', '1 second', '15 minutes', 0.2, '1 second', 'none', 'continue',
	NULL, false, NULL, (SELECT q.created_at FROM outbox.queues q WHERE q.queue = 'default'), 'object');

---------------------------------------------------------------- what an operator sees

CREATE VIEW model.dead_letters AS
	SELECT a.outbox_id, m.queue, m.event_id, m.created_at, a.created_at AS died_at, a.error_code, a.error_message,
		a.attempt_no AS attempts, a.worker_id, a.recorded_by, m.replay_of, a.slack
	FROM model.attempts a JOIN model.messages m USING (outbox_id)
	WHERE a.state = 'FAILED' AND NOT EXISTS (SELECT FROM model.replays r WHERE r.outbox_id = a.outbox_id);

CREATE VIEW model.operational_status AS
	SELECT p.outbox_id, p.queue,
		CASE
			WHEN p.lease_expires_at > clock_timestamp() THEN 'leased'
			WHEN p.lease_expires_at IS NOT NULL THEN 'expired'
			WHEN model.waits(p) THEN 'waiting'
			WHEN p.next_attempt_at > clock_timestamp() THEN 'scheduled'
			ELSE 'due'
		END AS state,
		p.release_count, a.attempt_no AS last_attempt_no, a.state AS last_attempt_state, '0'::interval AS slack
	FROM model.pending p
	LEFT JOIN model.attempts a ON a.outbox_id = p.outbox_id AND a.attempt_no = model.attempts_of(p.outbox_id);

CREATE VIEW model.status AS
	SELECT q.queue, q.paused, count(s) AS pending_count,
		count(s) FILTER (WHERE s.state = 'due') AS due_unleased_count,
		count(s) FILTER (WHERE s.state = 'leased') AS leased_count,
		count(s) FILTER (WHERE s.state = 'expired') AS expired_lease_count,
		count(s) FILTER (WHERE s.state = 'scheduled') AS scheduled_count,
		(SELECT count(*) FROM model.dead_letters d WHERE d.queue = q.queue) AS dead_count,
		'0'::interval AS slack
	FROM model.queues q LEFT JOIN model.operational_status s USING (queue)
	GROUP BY q.queue, q.paused;
