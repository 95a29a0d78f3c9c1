--
-- The indexes of our own are told by what they are, not by their names: where one was dropped,
-- or another was made in its place, whatever would use its table is refused (55000) before
-- anything is read or written, and check() says the same.
--
\set undated
\getenv testdir PG_ABS_SRCDIR
\set fresh :testdir /sql/fresh.inc
\i :fresh

SELECT outbox.create_queue('n', ordering => 'numbered', repair_delay => '0');
SELECT created FROM outbox.enqueue('due', '1', 'n', partition_key => 'k');
SELECT created FROM outbox.enqueue_and_claim('w', 'leased', '1', 'n', lease => '1 day');
SELECT created FROM outbox.enqueue_and_claim('w', 'expired', '1', 'n');
SELECT t.expire('expired');
SELECT recorded FROM outbox.enqueue_and_claim('w', 'dead', '1') e, LATERAL outbox.complete(e.outbox_id, e.lease_token, 'w', 'FAILED');

CREATE FUNCTION t.fingerprint() RETURNS text LANGUAGE sql AS $$
	SELECT md5(string_agg(x, '|' ORDER BY x)) FROM (
		SELECT md5(m::text) FROM outbox.messages m UNION ALL SELECT md5(a::text) FROM outbox.attempts a
		UNION ALL SELECT md5(p::text) FROM outbox.pending p UNION ALL SELECT md5(k::text) FROM outbox.idempotency_keys k
		UNION ALL SELECT md5(n::text) FROM outbox.key_numbers n UNION ALL SELECT md5(r::text) FROM outbox.replays r
		UNION ALL SELECT md5(q::text) FROM outbox.queues q) y(x)
$$;
CREATE FUNCTION t.raise_errors() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	found text := (SELECT string_agg(object || ' ' || problem, '; ' ORDER BY object, problem) FROM outbox.check() WHERE severity = 'error');
BEGIN
	IF found IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'CHECK', MESSAGE = found;
	END IF;
END
$$;
-- What each verb says, by what they say, and what check() finds. Everything is undone.
CREATE FUNCTION t.with_index(change text) RETURNS TABLE (outcome text, verbs text) LANGUAGE plpgsql SET client_min_messages = error AS $$
DECLARE
	said jsonb := '[]';
	verb text;
	call text;
	before text;
	message text;
BEGIN
	BEGIN
		-- The session knows the tables as they were.
		PERFORM outbox.enqueue('before', '1', 'n', partition_key => 'k', idempotency_key => 'before');
		EXECUTE change;
		FOR verb, call IN VALUES
			('enqueue', $v$SELECT outbox.enqueue('x', '1', 'n', partition_key => 'k', idempotency_key => 'x')$v$),
			('claim', $v$SELECT outbox.claim('w', 1, queues => '{n}')$v$),
			('complete', $v$SELECT outbox.complete(t.id('leased'), t.token('leased'), 'w', 'DISPATCHED')$v$),
			('renew', $v$SELECT outbox.renew('w', ARRAY[t.id('leased')], ARRAY[t.token('leased')], '1 h')$v$),
			('repair', $v$SELECT outbox.repair_expired_leases()$v$),
			('cancel', $v$SELECT outbox.cancel(t.id('due'), 'r')$v$),
			('replay', $v$SELECT outbox.replay(t.id('dead'))$v$),
			('alter_queue', $v$SELECT outbox.alter_queue('n', max_attempts => 3)$v$),
			('check()', 'SELECT t.raise_errors()')
		LOOP
			before := t.fingerprint();
			BEGIN
				EXECUTE call;
				message := 'works';
				RAISE EXCEPTION USING ERRCODE = 'UNDO0';
			EXCEPTION
				WHEN SQLSTATE 'UNDO0' THEN
					NULL;
				WHEN OTHERS THEN
					message := SQLSTATE || ' ' || SQLERRM;
			END;
			IF t.fingerprint() <> before THEN
				message := message || ' AND CHANGED SOMETHING';
			END IF;
			said := said || jsonb_build_object('verb', verb, 'outcome', message);
		END LOOP;
		RAISE EXCEPTION USING ERRCODE = 'UNDO0';
	EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
		NULL;
	END;
	RETURN QUERY
		SELECT s ->> 'outcome', string_agg(s ->> 'verb', ', ' ORDER BY n)
		FROM jsonb_array_elements(said) WITH ORDINALITY a(s, n) GROUP BY 1 ORDER BY min(n);
END
$$;
CREATE FUNCTION t.primary_key(leaf text, columns text) RETURNS TABLE (outcome text, verbs text) LANGUAGE sql AS $$
	SELECT t.with_index(format('ALTER TABLE outbox.%1$s DROP CONSTRAINT %1$s_pkey, ADD CONSTRAINT %1$s_pkey PRIMARY KEY (%2$s)', leaf, columns))
$$;
CREATE FUNCTION t.index(name text, definition text, kind text DEFAULT '') RETURNS TABLE (outcome text, verbs text) LANGUAGE sql AS $$
	SELECT t.with_index(format('DROP INDEX outbox.%1$s; CREATE %3$s INDEX %1$s ON outbox.%2$s', name, definition, kind))
$$;
\pset format unaligned
SELECT * FROM t.with_index('SELECT 1');

-- Primary keys under their names, of other columns, in another order, or of more.
SELECT * FROM t.primary_key('pending', 'created_at, outbox_id');
SELECT * FROM t.primary_key('pending', 'queue, outbox_id');
SELECT * FROM t.primary_key('pending', 'outbox_id, queue');
SELECT * FROM t.primary_key('pending', 'outbox_id) INCLUDE (queue');
SELECT * FROM t.primary_key('messages_default', 'created_at, outbox_id');
SELECT * FROM t.primary_key('messages_default', 'event_id, outbox_id');
SELECT * FROM t.primary_key('attempts_default', 'attempt_no, outbox_id');
SELECT * FROM t.primary_key('attempts_default', 'outbox_id, attempt_no, state');
SELECT * FROM t.primary_key('key_numbers', 'upto, digest');
SELECT * FROM t.primary_key('idempotency_keys', 'outbox_id');
SELECT * FROM t.primary_key('replays', 'outbox_id, replay_id');
SELECT * FROM t.primary_key('retired_numbers', 'sequence_id');
SELECT * FROM t.primary_key('queues', 'queue, ordering');
-- None at all; a unique index in its place.
SELECT * FROM t.with_index('ALTER TABLE outbox.pending DROP CONSTRAINT pending_pkey');
SELECT * FROM t.with_index('ALTER TABLE outbox.pending DROP CONSTRAINT pending_pkey; CREATE UNIQUE INDEX pending_pkey ON outbox.pending (outbox_id)');

-- The others under their names, each different in one thing.
SELECT * FROM t.index('pending_due', 'pending (queue, priority DESC, next_attempt_at) WHERE NOT held_back');
SELECT * FROM t.index('pending_due', 'pending (queue, priority, (GREATEST(next_attempt_at, lease_expires_at))) WHERE NOT held_back');
SELECT * FROM t.index('pending_due', 'pending (queue, priority DESC NULLS LAST, (GREATEST(next_attempt_at, lease_expires_at))) WHERE NOT held_back');
SELECT * FROM t.index('pending_due', 'pending (queue, priority DESC, (LEAST(next_attempt_at, lease_expires_at))) WHERE NOT held_back');
SELECT * FROM t.index('pending_due', 'pending (queue, priority DESC, (GREATEST(lease_expires_at, next_attempt_at))) WHERE NOT held_back');
SELECT * FROM t.index('pending_due', 'pending (queue text_pattern_ops, priority DESC, (GREATEST(next_attempt_at, lease_expires_at))) WHERE NOT held_back');
SELECT * FROM t.index('pending_due', 'pending (queue COLLATE "POSIX", priority DESC, (GREATEST(next_attempt_at, lease_expires_at))) WHERE NOT held_back');
SELECT * FROM t.index('pending_due', 'pending (queue, priority DESC, (GREATEST(next_attempt_at, lease_expires_at))) INCLUDE (outbox_id) WHERE NOT held_back');
SELECT * FROM t.index('pending_due', 'pending (queue, priority DESC, (GREATEST(next_attempt_at, lease_expires_at))) WHERE claimed_by IS NULL');
SELECT * FROM t.index('pending_due', 'pending (queue, priority DESC, (GREATEST(next_attempt_at, lease_expires_at)))');
SELECT * FROM t.index('pending_due', 'pending (queue, priority DESC, (GREATEST(next_attempt_at, lease_expires_at))) WHERE NOT held_back', 'UNIQUE');
-- A column that is called as the expression is not it.
SELECT * FROM t.with_index($$ALTER TABLE outbox.pending ADD COLUMN "GREATEST(next_attempt_at, lease_expires_at)" timestamptz; DROP INDEX outbox.pending_due;
	CREATE INDEX ON outbox.pending (queue, priority DESC, "GREATEST(next_attempt_at, lease_expires_at)") WHERE NOT held_back$$);
SELECT * FROM t.with_index('ALTER TABLE outbox.pending ADD COLUMN "GREATEST(next_attempt_at, lease_expires_at)" timestamptz');
SELECT * FROM t.index('pending_lease', 'pending (lease_expires_at, claimed_by)');
SELECT * FROM t.index('pending_lease', 'pending (claimed_by, lease_expires_at) WHERE claimed_by IS NOT NULL OR claimed_at IS NOT NULL OR lease_expires_at IS NOT NULL');
SELECT * FROM t.index('pending_lease', 'pending (lease_expires_at, claimed_by) WHERE claimed_by IS NOT NULL');
SELECT * FROM t.index('pending_key_sequence', 'pending (outbox.key_digest(queue, partition_key), sequence_id) WHERE sequence_id IS NOT NULL');
SELECT * FROM t.index('pending_key_sequence', 'pending (outbox.key_digest(partition_key, queue), sequence_id) WHERE sequence_id IS NOT NULL', 'UNIQUE');
SELECT * FROM t.index('pending_key_sequence', 'pending (outbox.key_digest(queue, partition_key), sequence_id) NULLS NOT DISTINCT WHERE sequence_id IS NOT NULL', 'UNIQUE');
SELECT * FROM t.index('attempts_default_one_terminal_per_outbox', 'attempts_default (outbox_id) WHERE state = ''DISPATCHED''', 'UNIQUE');
SELECT * FROM t.index('attempts_default_one_terminal_per_outbox', 'attempts_default (outbox_id) WHERE state IN (''DISPATCHED'', ''FAILED'')');
SELECT * FROM t.index('attempts_default_one_terminal_per_outbox', 'attempts_default (outbox_id, attempt_no) WHERE state IN (''DISPATCHED'', ''FAILED'')', 'UNIQUE');
SELECT * FROM t.index('attempts_default_failed', 'attempts_default (outbox_id DESC) WHERE state = ''FAILED''');
SELECT * FROM t.index('attempts_default_failed', 'attempts_default USING hash (outbox_id) WHERE state = ''FAILED''');
SELECT * FROM t.index('attempts_default_failed', 'attempts_default (outbox_id)');
-- Not valid, as CREATE INDEX CONCURRENTLY leaves it when it fails; check() is told by pg_index, too.
SELECT * FROM t.with_index($$UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox.pending_due'::regclass; ALTER TABLE outbox.pending RESET (autovacuum_vacuum_threshold)$$);

-- The same by another name, with other options, made after a copy of it, or as pg_dump writes
-- it, is ours.
SELECT * FROM t.with_index('ALTER INDEX outbox.pending_due RENAME TO by_due; ALTER INDEX outbox.pending_pkey RENAME TO by_id');
SELECT * FROM t.with_index('ALTER INDEX outbox.pending_due SET (fillfactor = 50); REINDEX TABLE outbox.pending');
SELECT * FROM t.with_index('CREATE INDEX pending_copy ON outbox.pending (queue, priority DESC, (GREATEST(next_attempt_at, lease_expires_at))) WHERE NOT held_back; DROP INDEX outbox.pending_due');
SELECT * FROM t.index('attempts_default_one_terminal_per_outbox', 'attempts_default USING btree (outbox_id) WHERE (state = ANY (ARRAY[''DISPATCHED''::outbox.attempt_state, ''FAILED''::outbox.attempt_state]))', 'UNIQUE');

-- An index that the catalog calls ours, whose entries lie at other places (damaged, that is): it may
-- hide rows, but the row decides what is due and which lease has expired.
CREATE FUNCTION t.misled(own regclass, other text, call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text;
BEGIN
	EXECUTE 'CREATE INDEX other ON outbox.pending ' || other;
	UPDATE pg_class c SET relfilenode = pg_relation_filenode(CASE c.oid WHEN own THEN 'outbox.other'::regclass ELSE own END)
	WHERE c.oid IN (own, 'outbox.other'::regclass);
	EXECUTE call INTO said;
	RAISE EXCEPTION USING ERRCODE = 'UNDO0';
EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
	RETURN said;
END
$$;
SELECT t.misled('outbox.pending_due', '(queue, priority DESC, next_attempt_at)',
	$$SELECT string_agg(event_type, ' ' ORDER BY event_type) FROM outbox.claim('v', 10, queues => '{n}')$$);
SELECT t.misled('outbox.pending_lease', '(created_at, claimed_by) WHERE claimed_by IS NOT NULL',
	$$SELECT string_agg(m.event_type, ' ' ORDER BY m.event_type) FROM outbox.repair_expired_leases() r JOIN outbox.messages m USING (outbox_id)$$);

-- Whatever the settings for printing and for names are.
SET quote_all_identifiers = on;
SET intervalstyle = 'sql_standard';
SET search_path = 'pg_temp';
SELECT * FROM t.with_index('SELECT 1');
SELECT count(*) FROM outbox.check() WHERE severity = 'error';
RESET search_path;
RESET intervalstyle;
RESET quote_all_identifiers;

-- What the HINT says helps.
\pset format aligned
ALTER TABLE outbox.pending DROP CONSTRAINT pending_pkey;
DROP INDEX outbox.pending_key_sequence;
SELECT outbox.enqueue('x', '1');
ALTER TABLE outbox.pending ADD CONSTRAINT pending_pkey PRIMARY KEY (outbox_id);
SELECT outbox.enqueue('x', '1');
CREATE UNIQUE INDEX pending_key_sequence ON outbox.pending (outbox.key_digest(queue, partition_key), sequence_id) WHERE sequence_id IS NOT NULL;
SELECT created FROM outbox.enqueue('x', '1');
SELECT * FROM outbox.check() WHERE severity = 'error';
