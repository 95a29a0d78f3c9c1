/* outbox_saga 0.2.0: the complete install script.
 *
 * What it guarantees: every change of a saga locks its row in saga.instances first, raises its version by one and
 * writes one row of saga.audit_log; a command is enqueued in the transaction of the change that asks for it. Every
 * object lives in schema saga, belongs to the role outbox_saga_owner (which cannot log in and is no superuser),
 * carries a COMMENT and gives PUBLIC nothing.
 *
 * The order is: roles, tables, storage, definitions, orchestrator, what the queue saga_internal brings, rights. The
 * functions are in the library of outbox (src/saga), but for those that are rarely called. They work on these tables
 * directly, as their owner would: whoever calls one needs EXECUTE alone. docs/saga.md says why it is right.
 */
\echo Use "CREATE EXTENSION outbox_saga" to load this file. \quit

SET LOCAL default_table_access_method = 'heap';
SET LOCAL default_tablespace = '';

---------------------------------------------------------------- roles

DO LANGUAGE plpgsql $roles$
DECLARE
	wanted record;
	existing record;
BEGIN
	FOR wanted IN
		SELECT * FROM (VALUES
			('outbox_saga_owner', 'owns all objects of the extension outbox_saga'),
			('outbox_saga', 'outbox_saga: may start sagas, answer their commands and store states')) AS v(name, meaning)
	LOOP
		LOOP
			SELECT rolcanlogin, rolsuper, rolcreaterole, rolbypassrls INTO existing
			FROM pg_catalog.pg_roles WHERE rolname = wanted.name;
			EXIT WHEN FOUND;
			BEGIN
				EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted.name);
				EXECUTE pg_catalog.format('COMMENT ON ROLE %I IS %L', wanted.name, wanted.meaning);
			EXCEPTION WHEN unique_violation OR duplicate_object THEN
				NULL;	-- made in another database meanwhile: look at it
			END;
		END LOOP;
		IF existing.rolcanlogin OR existing.rolsuper OR existing.rolcreaterole OR existing.rolbypassrls THEN
			RAISE EXCEPTION 'role "%" exists and has more rights than the extension may build on', wanted.name
				USING ERRCODE = 'invalid_role_specification',
					DETAIL = 'It can log in, is a superuser, or has CREATEROLE or BYPASSRLS.',
					HINT = pg_catalog.format('Use ALTER ROLE %I NOLOGIN NOSUPERUSER NOCREATEROLE NOBYPASSRLS, or rename that role.', wanted.name);
		END IF;
	END LOOP;
END
$roles$;

-- Memberships, not grants on the core's functions: those would stay after this extension is gone.
DO LANGUAGE plpgsql $grant$
BEGIN
	GRANT outbox_ingest, outbox_executor, outbox_operator TO outbox_saga_owner;
EXCEPTION WHEN unique_violation THEN	-- granted in another database meanwhile
	GRANT outbox_ingest, outbox_executor, outbox_operator TO outbox_saga_owner;
END
$grant$;

CREATE SCHEMA saga;
COMMENT ON SCHEMA saga IS 'sagas: their states, the commands they wait for, and what happened';

---------------------------------------------------------------- tables

CREATE TABLE saga.transitions (
	subject text COLLATE "C" NOT NULL,
	from_status text COLLATE "C" NOT NULL,
	to_status text COLLATE "C" NOT NULL,
	meaning text NOT NULL,
	CONSTRAINT transitions_pkey PRIMARY KEY (subject, from_status, to_status),
	CONSTRAINT transitions_subject CHECK (subject IN ('saga', 'step'))
);
INSERT INTO saga.transitions (subject, from_status, to_status, meaning) VALUES
	('saga', 'absent', 'started', 'create'),
	('saga', 'absent', 'running', 'start: the first commands are sent'),
	('saga', 'started', 'running', 'save'),
	('saga', 'started', 'failed', 'save'),
	('saga', 'running', 'running', 'save; a step succeeded'),
	('saga', 'running', 'compensating', 'save; a step failed or was given up; abort'),
	('saga', 'running', 'completed', 'save; all steps succeeded'),
	('saga', 'compensating', 'compensating', 'save; a step was compensated, or could not be'),
	('saga', 'compensating', 'failed', 'save; nothing is left to compensate'),
	('step', 'absent', 'sent', 'its command is sent'),
	('step', 'sent', 'succeeded', 'answer'),
	('step', 'sent', 'failed', 'answer'),
	('step', 'sent', 'unknown', 'given up: timeout, dead letter, ceiling, abort, failure of a parallel step'),
	('step', 'unknown', 'succeeded', 'late answer'),
	('step', 'unknown', 'failed', 'late answer'),
	('step', 'unknown', 'compensating', 'its compensation is sent'),
	('step', 'succeeded', 'compensating', 'its compensation is sent'),
	('step', 'compensating', 'compensated', 'answer'),
	('step', 'compensating', 'uncompensated', 'its compensation gave up'),
	('step', 'compensating', 'succeeded', 'late answer: it is compensated again'),
	('step', 'compensated', 'succeeded', 'late answer: it is compensated again'),
	('step', 'uncompensated', 'succeeded', 'late answer: it is compensated again'),
	('step', 'uncompensated', 'compensated', 'late answer of the compensation'),
	('step', 'uncompensated', 'unknown', 'retry');
COMMENT ON TABLE saga.transitions IS 'The transitions of sagas and of their steps. What is not listed is refused with P7008. Belongs to the extension: do not change it.';
COMMENT ON COLUMN saga.transitions.subject IS 'saga or step';
COMMENT ON COLUMN saga.transitions.from_status IS 'status before; absent = none';
COMMENT ON COLUMN saga.transitions.to_status IS 'status after';
COMMENT ON COLUMN saga.transitions.meaning IS 'what makes it';

CREATE TABLE saga.definitions (
	saga_type text COLLATE "C" NOT NULL,
	version integer NOT NULL,
	audit text COLLATE "C" NOT NULL,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	created_by text NOT NULL DEFAULT session_user,
	CONSTRAINT definitions_pkey PRIMARY KEY (saga_type, version),
	CONSTRAINT definitions_audit CHECK (audit IN ('full', 'diff'))
);
COMMENT ON TABLE saga.definitions IS 'Versions of sagas. A saga stays on the version it was started with.';
COMMENT ON COLUMN saga.definitions.saga_type IS 'kind of saga';
COMMENT ON COLUMN saga.definitions.version IS '1, 2, 3 ...; start takes the highest';
COMMENT ON COLUMN saga.definitions.audit IS 'full: audit_log has whole states; diff: what changed';
COMMENT ON COLUMN saga.definitions.created_at IS 'when it was defined';
COMMENT ON COLUMN saga.definitions.created_by IS 'by whom';

-- No foreign key, here or elsewhere: pg_restore --jobs fills the tables of an extension in any order.
CREATE TABLE saga.definition_steps (
	saga_type text COLLATE "C" NOT NULL,
	version integer NOT NULL,
	step_no integer NOT NULL,
	stage integer NOT NULL,
	name text COLLATE "C" NOT NULL,
	command text NOT NULL,
	queue text COLLATE "C" NOT NULL,
	compensation text,
	timeout interval,
	answer text COLLATE "C" NOT NULL,
	max_attempts integer,
	parallel_group text COLLATE "C",
	CONSTRAINT definition_steps_pkey PRIMARY KEY (saga_type, version, step_no),
	CONSTRAINT definition_steps_name UNIQUE (saga_type, version, name),
	CONSTRAINT definition_steps_answer CHECK (answer IN ('completion', 'reply')),
	CONSTRAINT definition_steps_timeout CHECK (timeout > interval '0' AND timeout <= interval '100 years'),
	CONSTRAINT definition_steps_max_attempts CHECK (max_attempts > 0)
);
COMMENT ON TABLE saga.definition_steps IS 'The steps of each version of a saga.';
COMMENT ON COLUMN saga.definition_steps.saga_type IS 'kind of saga';
COMMENT ON COLUMN saga.definition_steps.version IS 'its version';
COMMENT ON COLUMN saga.definition_steps.step_no IS '1, 2, 3 ... in the order of the definition';
COMMENT ON COLUMN saga.definition_steps.stage IS 'steps of one stage run at once; the next stage begins when all have succeeded';
COMMENT ON COLUMN saga.definition_steps.name IS 'name, unique in the saga';
COMMENT ON COLUMN saga.definition_steps.command IS 'event_type of its command';
COMMENT ON COLUMN saga.definition_steps.queue IS 'queue of its commands';
COMMENT ON COLUMN saga.definition_steps.compensation IS 'event_type of its compensation; NULL = there is nothing to undo';
COMMENT ON COLUMN saga.definition_steps.timeout IS 'how long an answer is waited for; NULL = for ever';
COMMENT ON COLUMN saga.definition_steps.answer IS 'completion: by saga.succeed or saga.fail; reply: by saga.reply';
COMMENT ON COLUMN saga.definition_steps.max_attempts IS 'ceiling of its command; NULL = the queue''s';
COMMENT ON COLUMN saga.definition_steps.parallel_group IS 'steps with the same one, side by side, run at once';

CREATE TABLE saga.instances (
	id uuid NOT NULL,
	saga_type text COLLATE "C" NOT NULL,
	correlation_id uuid,
	state jsonb NOT NULL,
	status text COLLATE "C" NOT NULL,
	current_step text COLLATE "C",
	version bigint NOT NULL,
	last_error text,
	retry_count integer NOT NULL DEFAULT 0,
	deadline timestamptz,
	definition_version integer,
	created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	completed_at timestamptz,
	CONSTRAINT instances_pkey PRIMARY KEY (id),
	CONSTRAINT instances_status CHECK (status IN ('started', 'running', 'compensating', 'completed', 'failed')),
	CONSTRAINT instances_end CHECK ((completed_at IS NOT NULL) = (status IN ('completed', 'failed')))
) WITH (fillfactor = 80);
CREATE INDEX instances_open_type ON saga.instances (saga_type, status) WHERE status IN ('started', 'running', 'compensating');
CREATE INDEX instances_correlation ON saga.instances (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX instances_open_updated ON saga.instances (updated_at) WHERE status IN ('started', 'running', 'compensating');
CREATE INDEX instances_waiting_again ON saga.instances (updated_at) WHERE completed_at IS NOT NULL AND current_step IS NOT NULL AND definition_version IS NOT NULL;
COMMENT ON TABLE saga.instances IS 'The sagas. The functions change it, and lock a row of it before anything else of that saga.';
COMMENT ON COLUMN saga.instances.id IS 'the saga';
COMMENT ON COLUMN saga.instances.saga_type IS 'its kind';
COMMENT ON COLUMN saga.instances.correlation_id IS 'what it belongs to';
COMMENT ON COLUMN saga.instances.state IS 'the state that its user keeps';
COMMENT ON COLUMN saga.instances.status IS 'started, running, compensating, completed or failed';
COMMENT ON COLUMN saga.instances.current_step IS 'step, or parallel group, that it waits for';
COMMENT ON COLUMN saga.instances.version IS 'number of its last change, from 1';
COMMENT ON COLUMN saga.instances.last_error IS 'what went wrong; of an orchestrated saga, what began its compensation';
COMMENT ON COLUMN saga.instances.retry_count IS 'changes that reported an error';
COMMENT ON COLUMN saga.instances.deadline IS 'when it is given up, if an answer has a timeout';
COMMENT ON COLUMN saga.instances.definition_version IS 'definitions.version; NULL = it is only stored here';
COMMENT ON COLUMN saga.instances.created_at IS 'when it was made';
COMMENT ON COLUMN saga.instances.updated_at IS 'when it changed';
COMMENT ON COLUMN saga.instances.completed_at IS 'when it ended';

CREATE TABLE saga.runs (
	saga_id uuid NOT NULL,
	saga_type text COLLATE "C" NOT NULL,
	idempotency_key text COLLATE "C",
	headers jsonb NOT NULL,
	CONSTRAINT runs_pkey PRIMARY KEY (saga_id)
);
CREATE UNIQUE INDEX runs_key ON saga.runs (saga_type, idempotency_key) WHERE idempotency_key IS NOT NULL;
COMMENT ON TABLE saga.runs IS 'What saga.start was given, which does not change.';
COMMENT ON COLUMN saga.runs.saga_id IS 'instances.id';
COMMENT ON COLUMN saga.runs.saga_type IS 'its kind';
COMMENT ON COLUMN saga.runs.idempotency_key IS 'a second start with it returns the first saga';
COMMENT ON COLUMN saga.runs.headers IS 'headers of all its commands';

CREATE TABLE saga.steps (
	saga_id uuid NOT NULL,
	step_no integer NOT NULL,
	step text COLLATE "C" NOT NULL,
	status text COLLATE "C" NOT NULL,
	command_id uuid NOT NULL,
	compensation_id uuid,
	rounds integer NOT NULL DEFAULT 0,
	result jsonb,
	error text,
	deadline timestamptz,
	sent_at timestamptz NOT NULL,
	answered_at timestamptz,
	compensated_at timestamptz,
	gave_up_at timestamptz,
	CONSTRAINT steps_pkey PRIMARY KEY (saga_id, step_no),
	CONSTRAINT steps_status CHECK (status IN ('sent', 'succeeded', 'failed', 'unknown', 'compensating', 'compensated', 'uncompensated')),
	CONSTRAINT steps_gave_up CHECK ((gave_up_at IS NOT NULL) = (status = 'uncompensated'))
) WITH (fillfactor = 80);
-- By a column that rarely changes: an answer then needs no new index entry.
CREATE INDEX steps_uncompensated ON saga.steps (saga_id) WHERE gave_up_at IS NOT NULL;
COMMENT ON TABLE saga.steps IS 'The steps of each saga whose commands were sent. Changed only under the lock of the row in saga.instances.';
COMMENT ON COLUMN saga.steps.saga_id IS 'instances.id';
COMMENT ON COLUMN saga.steps.step_no IS 'definition_steps.step_no';
COMMENT ON COLUMN saga.steps.step IS 'its name';
COMMENT ON COLUMN saga.steps.status IS 'sent, succeeded, failed, unknown (given up), compensating, compensated or uncompensated';
COMMENT ON COLUMN saga.steps.command_id IS 'outbox_id of its command';
COMMENT ON COLUMN saga.steps.compensation_id IS 'outbox_id of its last compensation';
COMMENT ON COLUMN saga.steps.rounds IS 'how often its compensation was sent: more than once after retry or a late answer';
COMMENT ON COLUMN saga.steps.result IS 'what its answer brought';
COMMENT ON COLUMN saga.steps.error IS 'its last error';
COMMENT ON COLUMN saga.steps.deadline IS 'when the answer that it waits for is given up';
COMMENT ON COLUMN saga.steps.sent_at IS 'when its command was sent';
COMMENT ON COLUMN saga.steps.answered_at IS 'when its command was answered; NULL = never';
COMMENT ON COLUMN saga.steps.compensated_at IS 'when its compensation was answered';
COMMENT ON COLUMN saga.steps.gave_up_at IS 'when its compensation gave up; NULL unless it is uncompensated';

CREATE TABLE saga.audit_log (
	saga_id uuid NOT NULL,
	version bigint NOT NULL,
	saga_type text COLLATE "C" NOT NULL,
	event_type text COLLATE "C" NOT NULL,
	step text COLLATE "C",
	old_status text COLLATE "C",
	new_status text COLLATE "C" NOT NULL,
	old_state jsonb,
	new_state jsonb,
	user_id text NOT NULL DEFAULT session_user,
	trace_id text,
	at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
	metadata jsonb NOT NULL DEFAULT '{}',
	CONSTRAINT audit_log_pkey PRIMARY KEY (saga_id, version),
	CONSTRAINT audit_log_event_type CHECK (event_type IN ('created', 'state_changed', 'step_executed', 'compensated', 'compensation_failed', 'failed', 'completed'))
);
CREATE INDEX audit_log_user ON saga.audit_log (user_id, at);
COMMENT ON TABLE saga.audit_log IS 'What happened: one row for each version of each saga. Append-only.';
COMMENT ON COLUMN saga.audit_log.saga_id IS 'instances.id';
COMMENT ON COLUMN saga.audit_log.version IS 'the version that the change made';
COMMENT ON COLUMN saga.audit_log.saga_type IS 'its kind';
COMMENT ON COLUMN saga.audit_log.event_type IS 'created, state_changed, step_executed, compensated, compensation_failed, failed or completed';
COMMENT ON COLUMN saga.audit_log.step IS 'the step that it is about';
COMMENT ON COLUMN saga.audit_log.old_status IS 'status before; NULL = created';
COMMENT ON COLUMN saga.audit_log.new_status IS 'status after';
COMMENT ON COLUMN saga.audit_log.old_state IS 'state before; NULL with audit = diff';
COMMENT ON COLUMN saga.audit_log.new_state IS 'state after; with audit = diff the keys that changed, null = removed';
COMMENT ON COLUMN saga.audit_log.user_id IS 'session user';
COMMENT ON COLUMN saga.audit_log.trace_id IS 'trace id of the header traceparent';
COMMENT ON COLUMN saga.audit_log.at IS 'when';
COMMENT ON COLUMN saga.audit_log.metadata IS 'status of the step, error, reason';

COMMENT ON CONSTRAINT transitions_pkey ON saga.transitions IS 'a transition once';
COMMENT ON CONSTRAINT transitions_subject ON saga.transitions IS 'what has a status';
COMMENT ON CONSTRAINT definitions_pkey ON saga.definitions IS 'a version once';
COMMENT ON CONSTRAINT definitions_audit ON saga.definitions IS 'how states are kept';
COMMENT ON CONSTRAINT definition_steps_pkey ON saga.definition_steps IS 'a step once';
COMMENT ON CONSTRAINT definition_steps_name ON saga.definition_steps IS 'a name once';
COMMENT ON CONSTRAINT definition_steps_answer ON saga.definition_steps IS 'how it is answered';
COMMENT ON CONSTRAINT definition_steps_timeout ON saga.definition_steps IS 'a timeout is positive, and its deadline a time';
COMMENT ON CONSTRAINT definition_steps_max_attempts ON saga.definition_steps IS 'at least one attempt';
COMMENT ON CONSTRAINT instances_pkey ON saga.instances IS 'a saga once';
COMMENT ON CONSTRAINT instances_status ON saga.instances IS 'the statuses';
COMMENT ON CONSTRAINT instances_end ON saga.instances IS 'what has ended has a time';
COMMENT ON CONSTRAINT runs_pkey ON saga.runs IS 'a saga once';
COMMENT ON CONSTRAINT steps_pkey ON saga.steps IS 'a step of a saga once';
COMMENT ON CONSTRAINT steps_status ON saga.steps IS 'the statuses';
COMMENT ON CONSTRAINT steps_gave_up ON saga.steps IS 'what is uncompensated has a time';
COMMENT ON CONSTRAINT audit_log_pkey ON saga.audit_log IS 'one row for each change';
COMMENT ON CONSTRAINT audit_log_event_type ON saga.audit_log IS 'what can happen';
COMMENT ON INDEX saga.transitions_pkey IS 'finds a transition';
COMMENT ON INDEX saga.definitions_pkey IS 'finds the newest version';
COMMENT ON INDEX saga.definition_steps_pkey IS 'lists the steps of a version';
COMMENT ON INDEX saga.definition_steps_name IS 'finds a step by its name';
COMMENT ON INDEX saga.instances_pkey IS 'finds a saga';
COMMENT ON INDEX saga.instances_open_type IS 'finds open sagas of a type';
COMMENT ON INDEX saga.instances_correlation IS 'finds the sagas of a correlation_id';
COMMENT ON INDEX saga.instances_open_updated IS 'finds those that are stuck';
COMMENT ON INDEX saga.instances_waiting_again IS 'finds those that have failed and wait for a compensation all the same';
COMMENT ON INDEX saga.runs_pkey IS 'finds what a saga was started with';
COMMENT ON INDEX saga.runs_key IS 'a key starts one saga';
COMMENT ON INDEX saga.steps_pkey IS 'lists the steps of a saga';
COMMENT ON INDEX saga.steps_uncompensated IS 'lists what a person must look at';
COMMENT ON INDEX saga.audit_log_pkey IS 'lists the changes of a saga';
COMMENT ON INDEX saga.audit_log_user IS 'lists what a user did';

SELECT pg_catalog.pg_extension_config_dump('saga.definitions', '');
SELECT pg_catalog.pg_extension_config_dump('saga.definition_steps', '');
SELECT pg_catalog.pg_extension_config_dump('saga.instances', '');
SELECT pg_catalog.pg_extension_config_dump('saga.runs', '');
SELECT pg_catalog.pg_extension_config_dump('saga.steps', '');
SELECT pg_catalog.pg_extension_config_dump('saga.audit_log', '');

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON saga.audit_log FOR EACH ROW EXECUTE FUNCTION outbox.append_only();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON saga.audit_log FOR EACH STATEMENT EXECUTE FUNCTION outbox.append_only();
ALTER TABLE saga.audit_log ENABLE ALWAYS TRIGGER append_only, ENABLE ALWAYS TRIGGER append_only_truncate;
COMMENT ON TRIGGER append_only ON saga.audit_log IS 'rows stay as they were written';
COMMENT ON TRIGGER append_only_truncate ON saga.audit_log IS 'rows stay as they were written';

CREATE VIEW saga.uncompensated AS
	SELECT s.saga_id, i.saga_type, i.correlation_id, i.status AS saga_status, s.step, d.compensation, s.compensation_id AS outbox_id, s.error, s.gave_up_at AS given_up_at
	FROM saga.steps s
	JOIN saga.instances i ON i.id = s.saga_id
	JOIN saga.definition_steps d ON d.saga_type = i.saga_type AND d.version = i.definition_version AND d.step_no = s.step_no
	WHERE s.gave_up_at IS NOT NULL;
COMMENT ON VIEW saga.uncompensated IS 'Steps whose compensation gave up: a person must look at them. saga.retry tries them again.';
COMMENT ON COLUMN saga.uncompensated.saga_id IS 'the saga';
COMMENT ON COLUMN saga.uncompensated.saga_type IS 'its kind';
COMMENT ON COLUMN saga.uncompensated.correlation_id IS 'what it belongs to';
COMMENT ON COLUMN saga.uncompensated.saga_status IS 'compensating or failed';
COMMENT ON COLUMN saga.uncompensated.step IS 'the step';
COMMENT ON COLUMN saga.uncompensated.compensation IS 'event_type of its compensation';
COMMENT ON COLUMN saga.uncompensated.outbox_id IS 'the compensation that gave up';
COMMENT ON COLUMN saga.uncompensated.error IS 'why';
COMMENT ON COLUMN saga.uncompensated.given_up_at IS 'when';

CREATE VIEW saga.stats AS
	SELECT i.saga_type, i.status, pg_catalog.count(*) AS sagas, pg_catalog.count(*) FILTER (WHERE i.deadline < pg_catalog.clock_timestamp()) AS overdue,
		pg_catalog.min(i.updated_at) AS unchanged_since
	FROM saga.instances i WHERE i.status IN ('started', 'running', 'compensating') GROUP BY i.saga_type, i.status;
COMMENT ON VIEW saga.stats IS 'The open sagas by type and status. Its cost does not grow with those that have ended.';
COMMENT ON COLUMN saga.stats.saga_type IS 'kind of saga';
COMMENT ON COLUMN saga.stats.status IS 'started, running or compensating';
COMMENT ON COLUMN saga.stats.sagas IS 'how many';
COMMENT ON COLUMN saga.stats.overdue IS 'how many of them have passed their deadline: timeouts are not handled, or not yet';
COMMENT ON COLUMN saga.stats.unchanged_since IS 'last change of the one that has not changed for longest';

CREATE FUNCTION saga.prometheus() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
	WITH type AS (
		SELECT DISTINCT d.saga_type FROM saga.definitions d
	), metric(saga_type, status, name, help, value) AS (
		SELECT saga_type, status, m.*
		FROM (SELECT t.saga_type, s.status FROM type t CROSS JOIN unnest('{running,compensating}'::text[]) s(status)) d
		FULL JOIN saga.stats t USING (saga_type, status) CROSS JOIN LATERAL (VALUES
			('open', 'Sagas that have not ended.', coalesce(t.sagas, 0)::numeric),
			('overdue', 'Sagas that have passed their deadline.', coalesce(t.overdue, 0)),
			('unchanged_seconds', 'How long the saga has not changed that has not changed for longest.',
				coalesce(trim_scale(extract(epoch FROM clock_timestamp() - t.unchanged_since)), 0))) m(name, help, value)
		UNION ALL
		SELECT saga_type, NULL, 'uncompensated', 'Compensations that gave up.', count(u.saga_id)
		FROM type LEFT JOIN saga.uncompensated u USING (saga_type) GROUP BY saga_type
	), shown AS (
		SELECT m.name, m.help, string_agg('saga_' || m.name || '{saga_type="' || replace(replace(replace(m.saga_type, E'\\', E'\\\\'), '"', E'\\"'), E'\n', E'\\n') || '"'
			|| coalesce(',status="' || m.status || '"', '') || '} ' || m.value || chr(10), '' ORDER BY m.saga_type, m.status) AS samples
		FROM metric m GROUP BY m.name, m.help
	)
	SELECT coalesce(string_agg('# HELP saga_' || s.name || ' ' || s.help || chr(10) || '# TYPE saga_' || s.name || ' gauge' || chr(10) || s.samples,
		'' ORDER BY s.name), '')
	FROM shown s;
END;
COMMENT ON FUNCTION saga.prometheus() IS
$$What saga.stats and saga.uncompensated show, in the text exposition format of Prometheus, by type, and those of open sagas by status; times in seconds. A type that is defined has samples also if there is none.
No arguments, no errors, no locks. Cost: reads the open sagas and the compensations that gave up.$$;

---------------------------------------------------------------- storage

CREATE FUNCTION saga.create(saga_type text, correlation_id uuid, state jsonb DEFAULT '{}', saga_id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_create';
COMMENT ON FUNCTION saga.create(text, uuid, jsonb, uuid) IS
$$Stores a saga of an orchestrator of your own, in status started, and returns its id. It need not be defined.
saga_type: its kind. correlation_id: what it belongs to, or NULL. state: a JSON object. saga_id: NULL = a new one.
Errors: 22004, 22023; 42710 the saga exists. Locks: waits for an open transaction that creates the same saga. Cost: a row with three to five index entries, and a row of the audit log.$$;

CREATE FUNCTION saga.load(saga_id uuid, for_update boolean DEFAULT false) RETURNS saga.instances
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_load';
COMMENT ON FUNCTION saga.load(uuid, boolean) IS
$$Returns a saga. for_update: locks it until the end of the transaction, so that saga.save cannot meet another version.
Errors: P7007 there is none; 22004. Locks: none, or the saga's row.$$;

CREATE FUNCTION saga.save(saga_id uuid, state jsonb, status text, expected_version bigint, current_step text DEFAULT NULL, error text DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_save';
COMMENT ON FUNCTION saga.save(uuid, jsonb, text, bigint, text, text) IS
$$Stores a new state and status of a saga that was made by saga.create, and returns the new version.
expected_version: the version that your decision is based on. error: becomes last_error, and retry_count grows by one.
Errors: P7006 another version (DETAIL: expected, found, changed when); P7007 there is none; P7008 the status cannot follow; 55000 a saga of saga.start; 22004, 22023. Locks: waits for the saga's row. Above READ COMMITTED a change after the snapshot is 40001. Cost: a row, and one of the audit log.$$;

CREATE FUNCTION saga.stuck(older_than interval) RETURNS SETOF saga.instances
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	SELECT i.* FROM saga.instances i
	WHERE i.status IN ('started', 'running', 'compensating') AND i.updated_at < clock_timestamp() - older_than
	UNION ALL
	SELECT i.* FROM saga.instances i
	WHERE i.completed_at IS NOT NULL AND i.current_step IS NOT NULL AND i.definition_version IS NOT NULL AND i.updated_at < clock_timestamp() - older_than
	ORDER BY updated_at
$$;
COMMENT ON FUNCTION saga.stuck(interval) IS
$$Open sagas that have not changed for so long, the oldest first, and failed ones that wait for a compensation again, after retry or a late answer. No errors, no locks. Cost: reads an index of these.$$;

---------------------------------------------------------------- definitions

CREATE FUNCTION saga.refuse_null(VARIADIC name_value text[]) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	FOR n IN 1 .. array_length(name_value, 1) BY 2 LOOP
		IF name_value[n + 1] IS NULL THEN
			RAISE EXCEPTION '% must not be null', name_value[n] USING ERRCODE = 'null_value_not_allowed';
		END IF;
	END LOOP;
END
$$;
COMMENT ON FUNCTION saga.refuse_null(text[]) IS 'Internal: names and values of arguments in turn; 22004 for the first that is NULL.';

CREATE FUNCTION saga.check_steps(steps jsonb) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
	bad text;
BEGIN
	PERFORM saga.refuse_null('steps', steps::text);
	IF jsonb_typeof(steps) <> 'array' OR steps = '[]' OR jsonb_path_exists(steps, 'strict $[*] ? (@.type() != "object")') THEN
		RAISE EXCEPTION 'steps must be an array of objects, and not empty' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	SELECT k INTO bad FROM jsonb_array_elements(steps) AS e CROSS JOIN LATERAL jsonb_object_keys(e) AS k
	WHERE k <> ALL ('{name,command,queue,compensation,timeout,answer,max_attempts,parallel_group}'::text[]) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'unknown key "%" in steps', bad USING ERRCODE = 'invalid_parameter_value',
			HINT = 'The keys of a step are name, command, queue, compensation, timeout, answer, max_attempts and parallel_group.';
	END IF;
	SELECT k INTO bad FROM jsonb_array_elements(steps) AS e CROSS JOIN unnest('{name,command,queue}'::text[]) AS k WHERE coalesce(e ->> k, '') = '' LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'a step has no %', bad USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF EXISTS (SELECT FROM jsonb_array_elements(steps) AS e WHERE e ->> 'compensation' = '') THEN
		RAISE EXCEPTION 'compensation must not be empty' USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out if there is nothing to undo.';
	END IF;
	SELECT e ->> 'queue' INTO bad FROM jsonb_array_elements(steps) AS e WHERE NOT EXISTS (SELECT FROM outbox.queues q WHERE q.queue = e ->> 'queue') LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'QUEUE_NOT_FOUND: queue "%" does not exist', bad USING ERRCODE = 'P7004';
	END IF;
END
$$;
COMMENT ON FUNCTION saga.check_steps(jsonb) IS 'Internal: refuses steps that saga.define cannot read, or whose queue does not exist.';

CREATE FUNCTION saga.define(saga_type text, steps jsonb, audit text DEFAULT 'full') RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	new_version integer;
	q outbox.queues;
BEGIN
	PERFORM saga.refuse_null('saga_type', saga_type, 'audit', audit);
	PERFORM saga.check_steps(steps);
	IF audit NOT IN ('full', 'diff') THEN
		RAISE EXCEPTION 'audit must be full or diff, not "%"', audit USING ERRCODE = 'invalid_parameter_value';
	END IF;
	LOCK TABLE saga.definitions IN SHARE ROW EXCLUSIVE MODE;
	SELECT coalesce(max(d.version), 0) + 1 INTO new_version FROM saga.definitions d WHERE d.saga_type = define.saga_type;
	INSERT INTO saga.definitions (saga_type, version, audit) VALUES (define.saga_type, new_version, define.audit);
	INSERT INTO saga.definition_steps (saga_type, version, step_no, stage, name, command, queue, compensation, timeout, answer, max_attempts, parallel_group)
	SELECT define.saga_type, new_version, l.n, sum(l.begins) OVER (ORDER BY l.n), l.name, l.command, l.queue, l.compensation, l.timeout,
		coalesce(l.answer, 'completion'), l.max_attempts, l.parallel_group
	FROM (
		SELECT e.n, s.*, coalesce(s.parallel_group <> lag(s.parallel_group) OVER (ORDER BY e.n), true)::integer AS begins
		FROM jsonb_array_elements(steps) WITH ORDINALITY AS e(e, n) CROSS JOIN LATERAL jsonb_to_record(e.e)
			AS s(name text, command text, queue text, compensation text, timeout interval, answer text, max_attempts integer, parallel_group text)) l;
	IF EXISTS (SELECT FROM saga.definition_steps d WHERE d.saga_type = define.saga_type AND d.version = new_version
			GROUP BY d.parallel_group HAVING d.parallel_group IS NOT NULL AND count(DISTINCT d.stage) > 1) THEN
		RAISE EXCEPTION 'the steps of a parallel_group must stand side by side' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	FOR q IN SELECT * FROM outbox.queues o WHERE o.dead_letter_queue IS DISTINCT FROM 'saga_internal'
		AND EXISTS (SELECT FROM saga.definition_steps d WHERE d.saga_type = define.saga_type AND d.version = new_version AND d.queue = o.queue) ORDER BY o.queue
	LOOP
		IF q.dead_letter_queue IS NOT NULL THEN
			RAISE EXCEPTION 'the dead_letter_queue of queue "%" must be "saga_internal", not "%"', q.queue, q.dead_letter_queue
				USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = 'A saga would not hear of commands that become dead letters.',
					HINT = 'Change it with outbox.alter_queue, or send the commands of sagas to another queue.';
		END IF;
		PERFORM outbox.alter_queue(q.queue, dead_letter_queue => 'saga_internal');
	END LOOP;
	RETURN new_version;
EXCEPTION WHEN unique_violation THEN
	RAISE EXCEPTION 'two steps have the same name' USING ERRCODE = 'invalid_parameter_value';
WHEN check_violation THEN
	RAISE EXCEPTION 'a step has a bad answer, timeout or max_attempts' USING ERRCODE = 'invalid_parameter_value',
		HINT = 'answer is completion or reply; timeout and max_attempts are above zero, timeout is at most 100 years.';
END
$$;
COMMENT ON FUNCTION saga.define(text, jsonb, text) IS
$$Defines a kind of saga, or its next version, and returns the version. Sagas that run stay on theirs.
steps: an array of objects with the keys name, command (event_type), queue, compensation (event_type; none = there is nothing to undo), timeout, answer (completion, the default, or reply), max_attempts, parallel_group. audit: full, or diff to keep what changed instead of whole states. The queues of the steps get the dead_letter_queue saga_internal.
Errors: 22004, 22023 bad steps; 22007 a timeout that is no interval; P7004 unknown queue; 55000 a queue has another dead_letter_queue; 22023 it is one. Locks: waits for another define; for queues that had no dead_letter_queue as outbox.alter_queue.$$;

---------------------------------------------------------------- orchestrator: answers

CREATE FUNCTION saga.succeed(outbox_id uuid, lease_token uuid, worker_id text, result jsonb DEFAULT '{}', state_patch jsonb DEFAULT '{}') RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_succeed';
COMMENT ON FUNCTION saga.succeed(uuid, uuid, text, jsonb, jsonb) IS
$$Completes the message of a command and advances its saga, in one transaction: the next commands are sent, or the saga ends.
outbox_id, lease_token, worker_id: as outbox.claim gave them. result: kept for the step, and part of the payload of later commands. state_patch: an object whose keys are written over those of the saga's state.
A command that was given up meanwhile is recorded as done, and compensated.
Errors: P7002 the lease is lost, and another worker has the command or has answered it, or the step was answered before and is not succeeded; P7007 the message is not a command of a saga, or that is gone; 22004, 22023. Locks: the saga's row, then the message's. Cost: outbox.complete, and for each command that it sends outbox.enqueue; three rows.$$;

CREATE FUNCTION saga.fail(outbox_id uuid, lease_token uuid, worker_id text, error_code text, error_message text, retryable boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_fail';
COMMENT ON FUNCTION saga.fail(uuid, uuid, text, text, text, boolean) IS
$$Reports that a command failed. retryable: it is tried again by its queue's backoff, and at the ceiling its outcome is unknown; otherwise it has not been done and will not be. A step that has failed, or whose outcome is unknown, begins the compensation of its saga; a compensation that has failed is listed in saga.uncompensated, and the next one goes on.
outbox_id, lease_token, worker_id: as outbox.claim gave them. error_code, error_message: for the ledger and the saga.
Errors, locks, cost: as saga.succeed.$$;

CREATE FUNCTION saga.reply(saga_id uuid, step text, succeeded boolean, result jsonb DEFAULT '{}', error text DEFAULT NULL, direction text DEFAULT 'forward',
	round integer DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_reply';
COMMENT ON FUNCTION saga.reply(uuid, text, boolean, jsonb, text, text, integer) IS
$$Answers a command where the answer comes by another way than its message, such as a broker. The first answer counts; the same one again changes nothing.
saga_id, step, direction: as in the headers of the command; direction is forward or compensate. round: that of a compensation; NULL = the last one that was sent. succeeded: whether it was done. result, error: what it brought.
Errors: P7007 there is no such saga; 55000 the step was not begun, or the saga is only stored here; 22004, 22023. Locks: the saga's row. Cost: for each command that it sends outbox.enqueue; three rows.$$;

---------------------------------------------------------------- orchestrator: begin and intervene

CREATE FUNCTION saga.start(saga_type text, correlation_id uuid, state jsonb DEFAULT '{}', idempotency_key text DEFAULT NULL, headers jsonb DEFAULT '{}') RETURNS uuid
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_start';
COMMENT ON FUNCTION saga.start(text, uuid, jsonb, text, jsonb) IS
$$Starts a saga by its newest definition: sends the commands of its first step, or parallel group, and returns its id.
saga_type: as defined. correlation_id: what it belongs to, or NULL. state: a JSON object. idempotency_key: a second start of this type with the same key returns the first saga and changes nothing. headers: of each of its commands, such as traceparent.
Errors: 42704 it is not defined; 22004, 22023; P7004 a queue is gone. Locks: waits for an open transaction with the same idempotency_key; above READ COMMITTED a key that was committed after the snapshot is 40001. Cost: outbox.enqueue for each command, and four rows.$$;

CREATE FUNCTION saga.abort(saga_id uuid, reason text) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_abort';
COMMENT ON FUNCTION saga.abort(uuid, text) IS
$$Gives up a saga that runs: its open commands are taken back, and what was done is compensated. If it is being compensated already, nothing changes.
reason: kept in last_error and the audit log.
Errors: P7007 there is none; P7008 it has ended; 55000 it is only stored here; 22004 NULL; 22023 an empty reason. Locks: the saga's row, then those of its open commands.$$;

CREATE FUNCTION saga.retry(saga_id uuid) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_retry';
COMMENT ON FUNCTION saga.retry(uuid) IS
$$Sends the compensations again that gave up, one after the other from the last step to the first. The saga keeps its status.
Errors: P7007 there is none; 55000 no compensation gave up; 22004. Locks: the saga's row.$$;

---------------------------------------------------------------- what comes by the queue saga_internal

CREATE FUNCTION saga.handle(message outbox.claimed) RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'outbox_saga_handle';
COMMENT ON FUNCTION saga.handle(outbox.claimed) IS
$$The handler of the queue saga_internal: timeouts, and dead letters of queues whose dead_letter_queue it is. What a message says is only a hint; the tables decide.
Errors: P8000, which ends the message, if it is neither, or belongs to no saga.$$;

---------------------------------------------------------------- owner and rights

DO LANGUAGE plpgsql $owner$
DECLARE
	statement text;
BEGIN
	FOR statement IN
		SELECT pg_catalog.format('ALTER %s %s OWNER TO outbox_saga_owner', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::pg_catalog.regclass)
		FROM pg_catalog.pg_class c
		WHERE c.relnamespace = 'saga'::pg_catalog.regnamespace AND c.relkind IN ('r', 'v')
		UNION ALL
		SELECT pg_catalog.format('ALTER ROUTINE %s OWNER TO outbox_saga_owner', p.oid::pg_catalog.regprocedure)
		FROM pg_catalog.pg_proc p
		WHERE p.pronamespace = 'saga'::pg_catalog.regnamespace
	LOOP
		EXECUTE statement;
	END LOOP;
END
$owner$;
ALTER SCHEMA saga OWNER TO outbox_saga_owner;

REVOKE ALL ON SCHEMA saga FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA saga FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA saga FROM PUBLIC;

GRANT USAGE ON SCHEMA saga TO outbox_saga, outbox_operator, outbox_readonly, outbox_auditor;
GRANT EXECUTE ON FUNCTION saga.start, saga.succeed, saga.fail, saga.reply, saga.create, saga.load, saga.save TO outbox_saga;
GRANT EXECUTE ON FUNCTION saga.define, saga.abort, saga.retry TO outbox_operator;
GRANT EXECUTE ON FUNCTION saga.stuck TO outbox_saga, outbox_operator, outbox_readonly, outbox_auditor;
GRANT EXECUTE ON FUNCTION saga.prometheus TO outbox_operator, outbox_readonly, outbox_auditor;
GRANT SELECT ON saga.transitions, saga.definitions, saga.definition_steps, saga.instances, saga.runs, saga.steps, saga.audit_log, saga.uncompensated, saga.stats
	TO outbox_operator, outbox_readonly, outbox_auditor;

-- Last: the handler has its owner now. A queue that an earlier installation left is taken over.
DO LANGUAGE plpgsql $queue$
BEGIN
	IF EXISTS (SELECT FROM outbox.queues q WHERE q.queue OPERATOR(pg_catalog.=) 'saga_internal') THEN
		PERFORM outbox.alter_queue('saga_internal', handler => 'saga.handle');
	ELSE
		PERFORM outbox.create_queue('saga_internal', max_attempts => NULL, handler => 'saga.handle');
	END IF;
END
$queue$;
