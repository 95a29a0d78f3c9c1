-- Sagas as a specification: the orchestrator in PL/pgSQL, which src/saga replaced, written for reading, not for speed.
-- The test 073_saga_reference.pl puts it in the place of the extension's functions in a second database, and sends both
-- the same calls. The tables, and what is SQL there too, such as saga.define, are the extension's.
--
-- A function takes the row as it was and as it shall be; saga.put alone writes it.

---------------------------------------------------------------- what all functions use

CREATE OR REPLACE FUNCTION saga.check_object(name text, value jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF value IS NULL THEN
		RAISE EXCEPTION '% must not be null', name USING ERRCODE = 'null_value_not_allowed';
	ELSIF jsonb_typeof(value) <> 'object' THEN
		RAISE EXCEPTION '% must be a JSON object, not %', name, jsonb_typeof(value) USING ERRCODE = 'invalid_parameter_value';
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION saga.check_transition(subject text, from_status text, to_status text, what text) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM saga.transitions t WHERE t.subject = check_transition.subject
			AND t.from_status = check_transition.from_status AND t.to_status = check_transition.to_status) THEN
		RAISE EXCEPTION 'INVALID_TRANSITION: % cannot go from % to %', what, from_status, coalesce(to_status, 'NULL')
			USING ERRCODE = 'P7008', HINT = 'saga.transitions lists what is possible.';
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION saga.locked(saga_id uuid) RETURNS saga.instances LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	i saga.instances;
BEGIN
	SELECT * INTO i FROM saga.instances s WHERE s.id = locked.saga_id FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'SAGA_NOT_FOUND: there is no saga %', saga_id USING ERRCODE = 'P7007';
	END IF;
	RETURN i;
END
$$;

CREATE OR REPLACE FUNCTION saga.changed_keys(old_state jsonb, new_state jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
	SELECT coalesce(pg_catalog.jsonb_object_agg(key, n.value), '{}')
	FROM pg_catalog.jsonb_each(old_state) o FULL JOIN pg_catalog.jsonb_each(new_state) n USING (key)
	WHERE o.value IS DISTINCT FROM n.value
$$;

CREATE OR REPLACE FUNCTION saga.note(was saga.instances, becomes saga.instances, event_type text, step text, metadata jsonb) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	INSERT INTO saga.audit_log (saga_id, version, saga_type, event_type, step, old_status, new_status, old_state, new_state, trace_id, at, metadata)
	SELECT becomes.id, becomes.version, becomes.saga_type, note.event_type, note.step, was.status, becomes.status,
		CASE WHEN NOT d.short THEN was.state END, CASE WHEN d.short THEN saga.changed_keys(coalesce(was.state, '{}'), becomes.state) ELSE becomes.state END,
		(SELECT split_part(r.headers ->> 'traceparent', '-', 2) FROM saga.runs r WHERE r.saga_id = becomes.id), becomes.updated_at, jsonb_strip_nulls(note.metadata)
	FROM (SELECT EXISTS (SELECT FROM saga.definitions e WHERE e.saga_type = becomes.saga_type AND e.version = becomes.definition_version AND e.audit = 'diff')) AS d(short);
END
$$;

CREATE OR REPLACE FUNCTION saga.make(becomes saga.instances) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM saga.check_transition('saga', 'absent', becomes.status, format('saga %s', becomes.id));
	becomes.version := 1;
	becomes.retry_count := 0;
	becomes.created_at := clock_timestamp();
	becomes.updated_at := becomes.created_at;
	INSERT INTO saga.instances SELECT becomes.*;
	PERFORM saga.note(NULL, becomes, 'created', becomes.current_step, '{}');
END
$$;

CREATE OR REPLACE FUNCTION saga.put(was saga.instances, becomes saga.instances, event_type text, step text DEFAULT NULL, metadata jsonb DEFAULT '{}') RETURNS saga.instances
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	between saga.instances;
BEGIN
	IF was.status = 'running' AND becomes.status = 'failed' THEN	-- nothing was to be compensated
		between := becomes;
		between.status := 'compensating';
		was := saga.put(was, between, event_type, step, metadata);
		metadata := '{}';
	END IF;
	IF becomes.status <> was.status THEN
		PERFORM saga.check_transition('saga', was.status, becomes.status, format('saga %s', was.id));
		event_type := CASE WHEN becomes.status IN ('completed', 'failed') THEN becomes.status ELSE event_type END;
		becomes.completed_at := CASE WHEN becomes.status IN ('completed', 'failed') THEN clock_timestamp() END;
	END IF;
	becomes.version := was.version + 1;
	becomes.updated_at := clock_timestamp();
	UPDATE saga.instances i SET state = becomes.state, status = becomes.status, current_step = becomes.current_step, version = becomes.version,
		last_error = becomes.last_error, retry_count = becomes.retry_count, deadline = becomes.deadline, updated_at = becomes.updated_at, completed_at = becomes.completed_at
	WHERE i.id = was.id;
	PERFORM saga.note(was, becomes, event_type, step, metadata);
	RETURN becomes;
END
$$;

---------------------------------------------------------------- storage

CREATE OR REPLACE FUNCTION saga.create(saga_type text, correlation_id uuid, state jsonb DEFAULT '{}', saga_id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	i saga.instances;
BEGIN
	PERFORM saga.refuse_null('saga_type', saga_type);
	PERFORM saga.check_object('state', state);
	i.id := coalesce(saga_id, gen_random_uuid());
	i.saga_type := saga_type;
	i.correlation_id := correlation_id;
	i.state := state;
	i.status := 'started';
	PERFORM saga.make(i);
	RETURN i.id;
EXCEPTION WHEN unique_violation THEN
	RAISE EXCEPTION 'saga % exists', saga_id USING ERRCODE = 'duplicate_object';
END
$$;

CREATE OR REPLACE FUNCTION saga.load(saga_id uuid, for_update boolean DEFAULT false) RETURNS saga.instances
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	i saga.instances;
BEGIN
	PERFORM saga.refuse_null('saga_id', saga_id::text, 'for_update', for_update::text);
	IF for_update THEN
		RETURN saga.locked(saga_id);
	END IF;
	SELECT * INTO i FROM saga.instances s WHERE s.id = load.saga_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'SAGA_NOT_FOUND: there is no saga %', saga_id USING ERRCODE = 'P7007';
	END IF;
	RETURN i;
END
$$;

CREATE OR REPLACE FUNCTION saga.save(saga_id uuid, state jsonb, status text, expected_version bigint, current_step text DEFAULT NULL, error text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	was saga.instances;
	becomes saga.instances;
BEGIN
	PERFORM saga.refuse_null('saga_id', saga_id::text, 'status', status, 'expected_version', expected_version::text);
	PERFORM saga.check_object('state', state);
	was := saga.locked(saga_id);
	IF was.version <> expected_version THEN
		RAISE EXCEPTION 'VERSION_CONFLICT: saga % has another version', saga_id USING ERRCODE = 'P7006',
			DETAIL = format('Expected version %s, found %s, changed at %s.', expected_version, was.version, was.updated_at),
			HINT = 'Load the saga again, and decide by what it is now.';
	ELSIF was.definition_version IS NOT NULL THEN
		RAISE EXCEPTION 'saga % is run by the orchestrator', saga_id USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'Its state changes with the answers to its commands: use the state_patch of saga.succeed.';
	END IF;
	PERFORM saga.check_transition('saga', was.status, status, format('saga %s', saga_id));
	becomes := was;
	becomes.state := state;
	becomes.status := status;
	becomes.current_step := current_step;
	becomes.last_error := coalesce(error, was.last_error);
	becomes.retry_count := was.retry_count + (error IS NOT NULL)::integer;
	becomes := saga.put(was, becomes, 'state_changed', current_step, jsonb_build_object('error', error));
	RETURN becomes.version;
END
$$;

---------------------------------------------------------------- orchestrator: commands

CREATE OR REPLACE FUNCTION saga.send(i saga.instances, d saga.definition_steps, direction text, round integer, deadline timestamptz) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	key CONSTANT text := format('%s/%s/%s', i.id, d.name, direction) || CASE WHEN round > 1 THEN format('/%s', round) ELSE '' END;
	forward CONSTANT boolean := direction = 'forward';
	id uuid;
BEGIN
	SELECT e.outbox_id INTO id FROM outbox.enqueue(
		CASE WHEN forward THEN d.command ELSE d.compensation END,
		jsonb_build_object('state', i.state, 'results', (SELECT coalesce(jsonb_object_agg(s.step, s.result) FILTER (WHERE s.result IS NOT NULL), '{}') FROM saga.steps s WHERE s.saga_id = i.id)),
		d.queue, aggregate_type => i.saga_type, aggregate_id => i.id::text, partition_key => i.id::text, idempotency_key => key,
		max_attempts => CASE WHEN forward THEN d.max_attempts END,
		headers => (SELECT r.headers FROM saga.runs r WHERE r.saga_id = i.id) || jsonb_build_object('saga_id', i.id, 'saga_type', i.saga_type,
			'step', d.name, 'direction', direction, 'round', round, 'correlation_id', i.correlation_id)) e;
	IF deadline IS NOT NULL THEN
		PERFORM outbox.enqueue('saga.timeout', jsonb_build_object('saga_id', i.id, 'step', d.name, 'direction', direction, 'round', round), 'saga_internal',
			aggregate_type => i.saga_type, aggregate_id => i.id::text, partition_key => i.id::text, idempotency_key => key, deliver_at => deadline);
	END IF;
	RETURN id;
END
$$;

CREATE OR REPLACE FUNCTION saga.send_stage(i saga.instances, stage integer) RETURNS saga.instances LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	now CONSTANT timestamptz := clock_timestamp();
	d saga.definition_steps;
BEGIN
	i.deadline := NULL;
	i.current_step := NULL;
	FOR d IN SELECT * FROM saga.definition_steps s WHERE s.saga_type = i.saga_type AND s.version = i.definition_version
		AND s.stage = send_stage.stage ORDER BY s.step_no
	LOOP
		PERFORM saga.check_transition('step', 'absent', 'sent', d.name);
		INSERT INTO saga.steps (saga_id, step_no, step, status, command_id, deadline, sent_at)
		VALUES (i.id, d.step_no, d.name, 'sent', saga.send(i, d, 'forward', 1, now + d.timeout), now + d.timeout, now);
		i.current_step := coalesce(d.parallel_group, d.name);
		i.deadline := least(i.deadline, now + d.timeout);
	END LOOP;
	RETURN i;
END
$$;

CREATE OR REPLACE FUNCTION saga.put_step(s saga.steps, to_status text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF s.status <> to_status THEN
		PERFORM saga.check_transition('step', s.status, to_status, format('step "%s" of saga %s', s.step, s.saga_id));
	END IF;
	UPDATE saga.steps t SET status = to_status, compensation_id = s.compensation_id, rounds = s.rounds, result = s.result, error = s.error,
		deadline = s.deadline, answered_at = s.answered_at, compensated_at = s.compensated_at,
		gave_up_at = CASE WHEN to_status = 'uncompensated' THEN s.compensated_at END
	WHERE t.saga_id = s.saga_id AND t.step_no = s.step_no;
END
$$;

CREATE OR REPLACE FUNCTION saga.withdraw(command_id uuid, reason text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM outbox.cancel(command_id, reason, true);
EXCEPTION WHEN SQLSTATE 'P7005' THEN
	NULL;	-- it has ended
END
$$;

---------------------------------------------------------------- orchestrator: what comes next

CREATE OR REPLACE FUNCTION saga.compensate_next(i saga.instances) RETURNS saga.instances LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	s saga.steps;
	d saga.definition_steps;
BEGIN
	SELECT * INTO s FROM saga.steps t WHERE t.saga_id = i.id AND (t.status = 'compensating' OR t.status IN ('succeeded', 'unknown')
		AND EXISTS (SELECT FROM saga.definition_steps e WHERE e.saga_type = i.saga_type AND e.version = i.definition_version
			AND e.step_no = t.step_no AND e.compensation IS NOT NULL))
	ORDER BY t.status = 'compensating' DESC, t.step_no DESC LIMIT 1;
	IF s.status = 'compensating' THEN
		RETURN i;	-- one at a time
	END IF;
	i.deadline := NULL;
	i.current_step := s.step;
	IF s.step IS NULL THEN
		i.status := 'failed';
		RETURN i;
	END IF;
	SELECT * INTO d FROM saga.definition_steps e WHERE e.saga_type = i.saga_type AND e.version = i.definition_version AND e.step_no = s.step_no;
	s.rounds := s.rounds + 1;
	s.deadline := CASE WHEN d.answer = 'reply' THEN clock_timestamp() + d.timeout END;
	s.compensated_at := NULL;
	s.compensation_id := saga.send(i, d, 'compensate', s.rounds, s.deadline);
	PERFORM saga.put_step(s, 'compensating');
	i.deadline := s.deadline;
	RETURN i;
END
$$;

CREATE OR REPLACE FUNCTION saga.begin_compensation(i saga.instances, error text) RETURNS saga.instances LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	s saga.steps;
BEGIN
	i.status := 'compensating';
	i.last_error := error;
	i.retry_count := i.retry_count + 1;
	FOR s IN SELECT * FROM saga.steps t WHERE t.saga_id = i.id AND t.status = 'sent' ORDER BY t.step_no LOOP
		PERFORM saga.withdraw(s.command_id, error);
		s.error := error;
		PERFORM saga.put_step(s, 'unknown');
	END LOOP;
	RETURN saga.compensate_next(i);
END
$$;

CREATE OR REPLACE FUNCTION saga.go_on(i saga.instances) RETURNS saga.instances LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	stage integer;
	open boolean;
BEGIN
	SELECT max(d.stage), bool_or(s.status = 'sent') INTO stage, open
	FROM saga.steps s JOIN saga.definition_steps d ON d.saga_type = i.saga_type AND d.version = i.definition_version AND d.step_no = s.step_no
	WHERE s.saga_id = i.id;
	IF open THEN
		SELECT min(s.deadline) INTO i.deadline FROM saga.steps s WHERE s.saga_id = i.id AND s.status = 'sent';
		RETURN i;	-- for parallel steps
	END IF;
	i := saga.send_stage(i, stage + 1);
	IF i.current_step IS NULL THEN
		i.status := 'completed';
	END IF;
	RETURN i;
END
$$;

CREATE OR REPLACE FUNCTION saga.advance(was saga.instances, becomes saga.instances, step text, step_status text, error text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF becomes.status <> 'running' THEN
		becomes := saga.compensate_next(becomes);
	ELSIF step_status = 'succeeded' THEN
		becomes := saga.go_on(becomes);
	ELSE
		becomes := saga.begin_compensation(becomes, error);
	END IF;
	PERFORM saga.put(was, becomes,
		CASE step_status WHEN 'succeeded' THEN 'step_executed' WHEN 'compensated' THEN 'compensated' WHEN 'uncompensated' THEN 'compensation_failed' ELSE 'state_changed' END,
		step, jsonb_build_object('step_status', step_status, 'error', error));
END
$$;

---------------------------------------------------------------- orchestrator: answers

CREATE OR REPLACE FUNCTION saga.command_of(outbox_id uuid, OUT saga_id uuid, OUT step text, OUT direction text, OUT round integer) LANGUAGE plpgsql STABLE AS $$
DECLARE
	h jsonb;
BEGIN
	SELECT b.headers INTO h FROM outbox.message_body(outbox_id) b;
	IF NOT coalesce(h ?& '{saga_id,step,direction,round}'::text[], false) THEN
		RAISE EXCEPTION 'SAGA_NOT_FOUND: message % is not a command of a saga', outbox_id USING ERRCODE = 'P7007';
	END IF;
	saga_id := h ->> 'saga_id';
	step := h ->> 'step';
	direction := h ->> 'direction';
	round := h ->> 'round';
END
$$;

CREATE OR REPLACE FUNCTION saga.step_of(i saga.instances, step text) RETURNS saga.steps LANGUAGE plpgsql STABLE AS $$
DECLARE
	s saga.steps;
BEGIN
	IF i.definition_version IS NULL THEN
		RAISE EXCEPTION 'saga % is not run by the orchestrator', i.id USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Use saga.save.';
	END IF;
	SELECT * INTO s FROM saga.steps t WHERE t.saga_id = i.id AND t.step = step_of.step;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'saga % has not begun a step "%"', i.id, step USING ERRCODE = 'object_not_in_prerequisite_state';
	END IF;
	RETURN s;
END
$$;

-- What says that it is the command of a step has to be it, or a replay of it.
CREATE OR REPLACE FUNCTION saga.is_sent(outbox_id uuid, s saga.steps, direction text) RETURNS boolean LANGUAGE sql STABLE AS $$
	WITH RECURSIVE replayed AS (
		SELECT is_sent.outbox_id AS id
		UNION ALL
		SELECT m.replay_of FROM replayed r JOIN outbox.messages m ON m.outbox_id = r.id WHERE m.replay_of IS NOT NULL)
	SELECT EXISTS (SELECT FROM replayed WHERE id = CASE direction WHEN 'forward' THEN s.command_id ELSE s.compensation_id END)
$$;
CREATE OR REPLACE FUNCTION saga.refuse_unsent(outbox_id uuid, s saga.steps, direction text) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF NOT saga.is_sent(outbox_id, s, direction) THEN
		RAISE EXCEPTION 'SAGA_NOT_FOUND: message % is not a command of a saga', outbox_id USING ERRCODE = 'P7007';
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION saga.end_forward(was saga.instances, s saga.steps, to_status text, result jsonb, state_patch jsonb, error text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	becomes saga.instances := was;
BEGIN
	becomes.state := was.state || state_patch;
	s.answered_at := CASE WHEN to_status <> 'unknown' THEN clock_timestamp() END;
	s.result := result;
	s.error := coalesce(error, s.error);
	-- Too late, and not done: a compensation that is on its way need not be taken back.
	IF to_status = 'failed' AND s.status IN ('compensating', 'compensated', 'uncompensated') THEN
		to_status := s.status;
		PERFORM saga.put_step(s, to_status);
		PERFORM saga.put(was, becomes, 'state_changed', s.step, jsonb_build_object('step_status', to_status, 'error', error, 'late', true));
		RETURN;
	ELSIF s.status = 'compensating' THEN
		PERFORM saga.withdraw(s.compensation_id, 'its command was answered late');
	END IF;
	PERFORM saga.put_step(s, to_status);
	PERFORM saga.advance(was, becomes, s.step, to_status, error);
END
$$;

CREATE OR REPLACE FUNCTION saga.end_compensation(was saga.instances, s saga.steps, succeeded boolean, state_patch jsonb, error text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	to_status CONSTANT text := CASE WHEN succeeded THEN 'compensated' ELSE 'uncompensated' END;
	becomes saga.instances := was;
BEGIN
	becomes.state := was.state || state_patch;
	becomes.retry_count := was.retry_count + (NOT succeeded)::integer;
	s.compensated_at := clock_timestamp();
	s.error := coalesce(error, s.error);
	PERFORM saga.put_step(s, to_status);
	PERFORM saga.advance(was, becomes, s.step, to_status, error);
END
$$;

CREATE OR REPLACE FUNCTION saga.waits_for(s saga.steps, direction text, round integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE direction WHEN 'forward' THEN s.answered_at IS NULL
		ELSE s.status IN ('compensating', 'uncompensated') AND s.rounds = round END
$$;

CREATE OR REPLACE FUNCTION saga.answer(i saga.instances, s saga.steps, direction text, to_status text, result jsonb, state_patch jsonb, error text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF direction = 'forward' THEN
		PERFORM saga.end_forward(i, s, to_status, result, state_patch, error);
	ELSIF s.status = 'compensating' OR to_status = 'succeeded' THEN
		PERFORM saga.end_compensation(i, s, to_status = 'succeeded', state_patch, error);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION saga.succeed(outbox_id uuid, lease_token uuid, worker_id text, result jsonb DEFAULT '{}', state_patch jsonb DEFAULT '{}') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	c record;
	i saga.instances;
	s saga.steps;
	late boolean;	-- the saga has gone on without this answer
BEGIN
	PERFORM saga.refuse_null('outbox_id', outbox_id::text, 'lease_token', lease_token::text, 'worker_id', worker_id, 'result', result::text);
	PERFORM saga.check_object('state_patch', state_patch);
	c := saga.command_of(outbox_id);
	i := saga.locked(c.saga_id);
	s := saga.step_of(i, c.step);
	late := c.direction = 'forward' AND s.answered_at IS NULL AND s.status <> 'sent';
	-- A command that was given up has been taken from its worker. What the worker did is no less done.
	IF saga.waits_for(s, c.direction, c.round) THEN
		PERFORM saga.refuse_unsent(outbox_id, s, c.direction);
	END IF;
	IF NOT late OR EXISTS (SELECT FROM outbox.pending p WHERE p.outbox_id = succeed.outbox_id) THEN
		PERFORM outbox.complete(outbox_id, lease_token, worker_id, 'DISPATCHED');
	END IF;
	IF c.direction = 'forward' AND s.answered_at IS NOT NULL AND s.status <> 'succeeded' THEN
		RAISE EXCEPTION 'LEASE_LOST: step "%" of saga % was answered before', c.step, i.id
			USING ERRCODE = 'P7002', DETAIL = 'Nothing would undo what is done now.', HINT = 'Roll back, and end the message with saga.fail.';
	END IF;
	IF saga.waits_for(s, c.direction, c.round) THEN
		PERFORM saga.answer(i, s, c.direction, 'succeeded', result, state_patch, NULL);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION saga.fail(outbox_id uuid, lease_token uuid, worker_id text, error_code text, error_message text, retryable boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	error CONSTANT text := coalesce(nullif(concat_ws(': ', error_code, error_message), ''), 'no error was given');
	recorded outbox.attempt_state;
	c record;
	i saga.instances;
	s saga.steps;
	late boolean;	-- the saga has gone on without this answer
BEGIN
	PERFORM saga.refuse_null('outbox_id', outbox_id::text, 'lease_token', lease_token::text, 'worker_id', worker_id, 'retryable', retryable::text);
	c := saga.command_of(outbox_id);
	i := saga.locked(c.saga_id);
	s := saga.step_of(i, c.step);
	late := c.direction = 'forward' AND s.answered_at IS NULL AND s.status <> 'sent';
	IF saga.waits_for(s, c.direction, c.round) THEN
		PERFORM saga.refuse_unsent(outbox_id, s, c.direction);
	END IF;
	IF NOT late OR EXISTS (SELECT FROM outbox.pending p WHERE p.outbox_id = fail.outbox_id)
		OR NOT EXISTS (SELECT FROM outbox.attempts a WHERE a.outbox_id = fail.outbox_id AND a.lease_token = fail.lease_token AND a.state <> 'RETRYABLE') THEN
		SELECT r.recorded INTO recorded FROM outbox.complete(outbox_id, lease_token, worker_id,
			CASE WHEN retryable THEN 'RETRYABLE' ELSE 'FAILED' END::outbox.attempt_state, error_code => fail.error_code, error_message => fail.error_message) r;
	END IF;
	IF recorded = 'RETRYABLE' OR NOT saga.waits_for(s, c.direction, c.round) OR (retryable AND late) THEN
		RETURN;
	END IF;
	PERFORM saga.answer(i, s, c.direction, CASE WHEN retryable THEN 'unknown' ELSE 'failed' END, NULL, '{}', error);
END
$$;

CREATE OR REPLACE FUNCTION saga.reply(saga_id uuid, step text, succeeded boolean, result jsonb DEFAULT '{}', error text DEFAULT NULL, direction text DEFAULT 'forward',
	round integer DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	i saga.instances;
	s saga.steps;
BEGIN
	PERFORM saga.refuse_null('saga_id', saga_id::text, 'step', step, 'succeeded', succeeded::text, 'result', result::text, 'direction', direction);
	IF direction NOT IN ('forward', 'compensate') THEN
		RAISE EXCEPTION 'direction must be forward or compensate, not "%"', direction USING ERRCODE = 'invalid_parameter_value';
	END IF;
	i := saga.locked(saga_id);
	s := saga.step_of(i, step);
	IF saga.waits_for(s, direction, coalesce(round, s.rounds)) THEN
		PERFORM saga.answer(i, s, direction, CASE WHEN succeeded THEN 'succeeded' ELSE 'failed' END, CASE WHEN succeeded THEN result END, '{}',
			CASE WHEN NOT succeeded THEN coalesce(nullif(error, ''), format('step "%s" failed', step)) END);
	END IF;
END
$$;

---------------------------------------------------------------- orchestrator: begin and intervene

CREATE OR REPLACE FUNCTION saga.start(saga_type text, correlation_id uuid, state jsonb DEFAULT '{}', idempotency_key text DEFAULT NULL, headers jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
	i saga.instances;
	existing uuid;
BEGIN
	PERFORM saga.refuse_null('saga_type', saga_type);
	PERFORM saga.check_object('state', state);
	PERFORM saga.check_object('headers', headers);
	SELECT max(d.version) INTO i.definition_version FROM saga.definitions d WHERE d.saga_type = start.saga_type;
	IF i.definition_version IS NULL THEN
		RAISE EXCEPTION 'saga type "%" is not defined', saga_type USING ERRCODE = 'undefined_object', HINT = 'Use saga.define.';
	END IF;
	i.id := gen_random_uuid();
	i.saga_type := saga_type;
	i.correlation_id := correlation_id;
	i.state := state;
	i.status := 'running';
	INSERT INTO saga.runs (saga_id, saga_type, idempotency_key, headers) VALUES (i.id, start.saga_type, start.idempotency_key, start.headers)
	ON CONFLICT (saga_type, idempotency_key) WHERE runs.idempotency_key IS NOT NULL DO NOTHING;
	IF NOT FOUND THEN
		SELECT r.saga_id INTO existing FROM saga.runs r WHERE r.saga_type = start.saga_type AND r.idempotency_key = start.idempotency_key;
		RETURN existing;
	END IF;
	PERFORM saga.make(saga.send_stage(i, 1));
	RETURN i.id;
END
$$;

CREATE OR REPLACE FUNCTION saga.abort(saga_id uuid, reason text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	was saga.instances;
BEGIN
	PERFORM saga.refuse_null('saga_id', saga_id::text, 'reason', reason);
	IF reason = '' THEN
		RAISE EXCEPTION 'reason must not be empty' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	was := saga.locked(saga_id);
	IF was.definition_version IS NULL THEN
		RAISE EXCEPTION 'saga % is not run by the orchestrator', saga_id USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Use saga.save.';
	ELSIF was.status <> 'compensating' THEN
		PERFORM saga.check_transition('saga', was.status, 'compensating', format('saga %s', saga_id));
		PERFORM saga.put(was, saga.begin_compensation(was, 'aborted: ' || reason), 'state_changed', NULL, jsonb_build_object('reason', reason));
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION saga.retry(saga_id uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	was saga.instances;
	s saga.steps;
BEGIN
	PERFORM saga.refuse_null('saga_id', saga_id::text);
	was := saga.locked(saga_id);
	FOR s IN SELECT * FROM saga.steps t WHERE t.saga_id = retry.saga_id AND t.status = 'uncompensated' LOOP
		PERFORM saga.put_step(s, 'unknown');
	END LOOP;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'saga % has no compensation that gave up', saga_id USING ERRCODE = 'object_not_in_prerequisite_state',
			HINT = 'saga.uncompensated lists those.';
	END IF;
	PERFORM saga.put(was, saga.compensate_next(was), 'state_changed', NULL, '{"retry": true}');
END
$$;

---------------------------------------------------------------- what comes by the queue saga_internal

CREATE OR REPLACE FUNCTION saga.time_out(saga_id uuid, step text, direction text, round integer) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	i CONSTANT saga.instances := saga.locked(saga_id);
	s CONSTANT saga.steps := saga.step_of(i, step);
	error CONSTANT text := format('step "%s" has not been answered in time', step);
BEGIN
	IF s.status <> (CASE direction WHEN 'forward' THEN 'sent' ELSE 'compensating' END) OR NOT saga.waits_for(s, direction, round) OR s.deadline IS NULL THEN
		RETURN;
	ELSIF s.deadline > clock_timestamp() THEN
		RAISE EXCEPTION 'step "%" has time until %', step, s.deadline;
	END IF;
	PERFORM saga.withdraw(CASE direction WHEN 'forward' THEN s.command_id ELSE s.compensation_id END, error);
	PERFORM saga.answer(i, s, direction, 'unknown', NULL, '{}', error);
END
$$;

CREATE OR REPLACE FUNCTION saga.bury(outbox_id uuid) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	c CONSTANT record := saga.command_of(outbox_id);
	i saga.instances;
	s saga.steps;
	cause text;
BEGIN
	i := saga.locked(c.saga_id);
	s := saga.step_of(i, c.step);
	IF s.status = (CASE c.direction WHEN 'forward' THEN 'sent' ELSE 'compensating' END) AND saga.waits_for(s, c.direction, c.round)
		AND EXISTS (SELECT FROM outbox.dead d WHERE d.outbox_id = bury.outbox_id) AND saga.is_sent(outbox_id, s, c.direction) THEN
		SELECT concat_ws(': ', a.error_code, a.error_message) INTO cause FROM outbox.last_attempt(outbox_id) a;
		PERFORM saga.answer(i, s, c.direction, 'unknown', NULL, '{}', format('step "%s" is a dead letter: %s', s.step, cause));
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION saga.handle(message outbox.claimed) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	p CONSTANT jsonb := message.payload;
BEGIN
	CASE message.event_type
		WHEN 'saga.timeout' THEN
			PERFORM saga.time_out((p ->> 'saga_id')::uuid, p ->> 'step', p ->> 'direction', (p ->> 'round')::integer);
		WHEN 'outbox.dead_letter' THEN
			PERFORM saga.bury((p ->> 'outbox_id')::uuid);
		ELSE
			RAISE EXCEPTION 'unknown event_type "%"', message.event_type USING ERRCODE = 'P8000';
	END CASE;
EXCEPTION WHEN SQLSTATE 'P7007' OR object_not_in_prerequisite_state OR invalid_text_representation OR numeric_value_out_of_range OR null_value_not_allowed THEN
	RAISE EXCEPTION '%', sqlerrm USING ERRCODE = 'P8000';
END
$$;
