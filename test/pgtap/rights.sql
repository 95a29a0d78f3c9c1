-- Rights: the whole matrix of object x role x privilege. What is not in it is not
-- granted; PUBLIC has nothing. (Rights at work: test/sql/rights.sql.)
SET client_min_messages = warning;
BEGIN;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS outbox;
SELECT plan(29);

-- Stands for PUBLIC: a role that is a member of nothing.
CREATE ROLE regress_outbox_public;
-- With dated partitions, shown as one.
SELECT is((SELECT count(*) FROM outbox.maintain()), 0::bigint, 'there is nothing for maintain to do');

CREATE FUNCTION pg_temp.on_table(who text, what oid) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(p, ' '), '')
	FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']
		|| CASE WHEN current_setting('server_version_num')::int >= 170000 THEN '{MAINTAIN}' ELSE '{}' END::text[]) p
	WHERE has_table_privilege(who, what, p)
		OR (p IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(who, what, p))
$$;
CREATE FUNCTION pg_temp.on_function(who text, what oid) RETURNS text LANGUAGE sql AS $$
	SELECT CASE WHEN has_function_privilege(who, what, 'EXECUTE') THEN 'EXECUTE' ELSE '' END
$$;
CREATE FUNCTION pg_temp.name(relation text) RETURNS text LANGUAGE sql AS $$
	SELECT regexp_replace(relation, '_p[0-9]{8}(_[0-9]{4})?$', '_dated') COLLATE "C"
$$;

SELECT results_eq($$
	SELECT DISTINCT pg_temp.name(relname), pg_temp.on_table('outbox_ingest', oid), pg_temp.on_table('outbox_executor', oid), pg_temp.on_table('outbox_operator', oid),
		pg_temp.on_table('outbox_readonly', oid), pg_temp.on_table('outbox_auditor', oid), pg_temp.on_table('outbox_privacy', oid), pg_temp.on_table('outbox_lookup', oid), pg_temp.on_table('regress_outbox_public', oid)
	FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S', 'f') ORDER BY 1$$,
-- relation                             ingest executor operator  readonly  auditor   privacy   lookup    PUBLIC
	$$VALUES
	('attempts' COLLATE "C",            '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('attempts_dated',                  '',   '',      '',       '',       '',       '',       '',       ''),
	('attempts_default',                '',   '',      '',       '',       '',       '',       '',       ''),
	('blocked_keys',                    '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('dead',                            '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('dead_letters',                    '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('erasures',                        '',   '',      '',       '',       'SELECT', 'SELECT', '',       ''),
	('events',                          '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('events_dated',                    '',   '',      '',       '',       '',       '',       '',       ''),
	('events_default',                  '',   '',      '',       '',       '',       '',       '',       ''),
	('idempotency_keys',                '',   '',      '',       '',       '',       '',       '',       ''),
	('key_marks',                       '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('key_numbers',                     '',   '',      '',       '',       '',       '',       '',       ''),
	('messages',                        '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('messages_dated',                  '',   '',      '',       '',       '',       '',       '',       ''),
	('messages_default',                '',   '',      '',       '',       '',       '',       '',       ''),
	('operational_status',              '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('pending',                         '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('queues',                          '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('rate_spending',                   '',   '',      '',       '',       '',       '',       '',       ''),
	('replays',                         '',   '',      '',       '',       '',       '',       '',       ''),
	('retention',                       '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('retired_numbers',                 '',   '',      '',       '',       '',       '',       '',       ''),
	('seal_floor',                      '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('seal_marks',                      '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('seals',                           '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('sequences',                       '',   '',      '',       '',       '',       '',       '',       ''),
	('stats',                           '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('status',                          '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       ''),
	('subject_hash_key',                '',   '',      '',       '',       '',       '',       '',       ''),
	('subject_keys',                    '',   '',      '',       '',       '',       '',       '',       ''),
	('subject_messages',                '',   '',      '',       '',       '',       'SELECT', '',       ''),
	('subjects',                        '',   '',      '',       '',       '',       'SELECT', '',       ''),
	('workers',                         '',   '',      'SELECT', 'SELECT', 'SELECT', '',       '',       '')$$,
	'rights on tables and views');

SELECT results_eq($$
	SELECT proname::text COLLATE "C", pg_temp.on_function('outbox_ingest', oid), pg_temp.on_function('outbox_executor', oid), pg_temp.on_function('outbox_operator', oid),
		pg_temp.on_function('outbox_readonly', oid), pg_temp.on_function('outbox_auditor', oid), pg_temp.on_function('outbox_privacy', oid), pg_temp.on_function('outbox_lookup', oid), pg_temp.on_function('regress_outbox_public', oid)
	FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace ORDER BY 1$$,
-- function                             ingest     executor   operator   readonly   auditor    privacy    lookup     PUBLIC
	$$VALUES
	('acknowledge_dead' COLLATE "C",    '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('alter_queue',                     '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('append_only',                     '',        '',        '',        '',        '',        '',        '',        ''),
	('backoff',                         '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('break_lease',                     '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('cancel',                          '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('cancel_batch',                    '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('cancel_many',                     '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('cancel_up_to',                    '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('certified_erasure',               '',        '',        '',        '',        '',        '',        '',        ''),
	('check',                           '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('check_privacy',                   '',        '',        '',        '',        '',        '',        '',        ''),
	('check_rows',                      '',        '',        '',        '',        '',        '',        '',        ''),
	('checked_batch',                   '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('claim',                           '',        'EXECUTE', '',        '',        '',        '',        '',        ''),
	('complete',                        '',        'EXECUTE', '',        '',        '',        '',        '',        ''),
	('complete_and_claim',              '',        'EXECUTE', '',        '',        '',        '',        '',        ''),
	('complete_batch',                  '',        'EXECUTE', '',        '',        '',        '',        '',        ''),
	('confirmed',                       '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('create_queue',                    '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('drop_queue',                      '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('enqueue',                         'EXECUTE', '',        '',        '',        '',        '',        '',        ''),
	('enqueue_and_claim',               'EXECUTE', 'EXECUTE', '',        '',        '',        '',        '',        ''),
	('enqueue_batch',                   'EXECUTE', '',        '',        '',        '',        '',        '',        ''),
	('erase_subject',                   '',        '',        '',        '',        '',        'EXECUTE', '',        ''),
	('explain',                         '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        '',        ''),
	('export_erasures',                 '',        '',        '',        '',        '',        'EXECUTE', '',        ''),
	('export_seals',                    '',        '',        'EXECUTE', '',        'EXECUTE', '',        '',        ''),
	('key_digest',                      '',        '',        '',        '',        '',        '',        '',        ''),
	('last_attempt',                    '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        'EXECUTE', ''),
	('lineage',                         '',        '',        '',        '',        '',        '',        '',        ''),
	('lost_messages',                   '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        '',        ''),
	('maintain',                        '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('master_key_id',                   '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('master_key_problem',              '',        '',        '',        '',        '',        '',        '',        ''),
	('merge_queue',                     '',        '',        '',        '',        '',        '',        '',        ''),
	('message_body',                    '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        '',        ''),
	('message_events',                  '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        '',        ''),
	('message_facts',                   '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        'EXECUTE', ''),
	('pause',                           '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('pending_changed',                 '',        '',        '',        '',        '',        '',        '',        ''),
	('prometheus',                      '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        '',        ''),
	('protect',                         'EXECUTE', '',        '',        '',        '',        'EXECUTE', '',        ''),
	('prove',                           '',        '',        'EXECUTE', '',        'EXECUTE', '',        '',        ''),
	('purge',                           '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('queue_stats',                     '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        '',        ''),
	('queue_status',                    '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        'EXECUTE', ''),
	('reapply_erasures',                '',        '',        '',        '',        '',        'EXECUTE', '',        ''),
	('record_event',                    '',        '',        '',        '',        '',        '',        '',        ''),
	('release',                         '',        'EXECUTE', '',        '',        '',        '',        '',        ''),
	('renew',                           '',        'EXECUTE', '',        '',        '',        '',        '',        ''),
	('repair_expired_leases',           '',        'EXECUTE', '',        '',        '',        '',        '',        ''),
	('replay',                          '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('replay_batch',                    '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('replay_many',                     '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('replay_up_to',                    '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('reschedule',                      '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('reset_stats',                     '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('restore_pending',                 '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('resume',                          '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('reveal',                          '',        '',        '',        '',        '',        'EXECUTE', '',        ''),
	('reveal_of',                       '',        '',        '',        '',        '',        '',        '',        ''),
	('rewrapped_key',                   '',        '',        '',        '',        '',        '',        '',        ''),
	('rotate_master_key',               '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('row_holders',                     '',        '',        '',        '',        '',        '',        '',        ''),
	('seal',                            '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('seal_leaves',                     '',        '',        'EXECUTE', '',        'EXECUTE', '',        '',        ''),
	('seal_recorded',                   '',        '',        '',        '',        '',        '',        '',        ''),
	('set_retention',                   '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('shown_time',                      '',        '',        '',        '',        '',        '',        '',        ''),
	('state_diagram',                   '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('subject_hash',                    '',        '',        '',        '',        '',        '',        '',        ''),
	('subject_report',                  '',        '',        '',        '',        '',        'EXECUTE', '',        ''),
	('table_problems',                  '',        '',        '',        '',        '',        '',        '',        ''),
	('take_number',                     '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('unblock',                         '',        '',        'EXECUTE', '',        '',        '',        '',        ''),
	('verify_seals',                    '',        '',        'EXECUTE', '',        'EXECUTE', '',        '',        ''),
	('wait_for_work',                   '',        'EXECUTE', '',        '',        '',        '',        '',        ''),
	('worker_status',                   '',        '',        'EXECUTE', 'EXECUTE', 'EXECUTE', '',        '',        '')$$,
	'rights on functions');

SELECT results_eq($$
	SELECT who, has_schema_privilege(who, 'outbox', 'USAGE'), has_schema_privilege(who, 'outbox', 'CREATE'), has_type_privilege(who, 'outbox.attempt_state', 'USAGE'), has_type_privilege(who, 'outbox.claimed', 'USAGE')
	FROM unnest(ARRAY['outbox_ingest', 'outbox_executor', 'outbox_operator', 'outbox_readonly', 'outbox_auditor', 'outbox_privacy', 'outbox_lookup', 'regress_outbox_public']) WITH ORDINALITY w(who, n) ORDER BY n$$,
-- who                          schema: USAGE CREATE USAGE of attempt_state, claimed
	$$VALUES
	('outbox_ingest',           true,         false, false, true),
	('outbox_executor',         true,         false, true, true),
	('outbox_operator',         true,         false, true, true),
	('outbox_readonly',         true,         false, true, false),
	('outbox_auditor',          true,         false, true, false),
	('outbox_privacy',          true,         false, false, false),
	('outbox_lookup',           false,        false, false, false),
	('regress_outbox_public',   false,        false, false, false)$$,
	'rights on the schema and the types');

-- The same of the access lists themselves: nobody else is in them, not with a grant
-- option, not by column, and PUBLIC not at all.
CREATE TEMP VIEW acl AS
	SELECT 'relation ' || c.oid::regclass AS object, relowner AS owner, a.* FROM pg_class c, LATERAL aclexplode(coalesce(relacl, acldefault('r', relowner))) a WHERE relnamespace = 'outbox'::regnamespace AND relkind <> 'c'
	UNION ALL SELECT 'column ' || attrelid::regclass || '.' || attname, relowner, a.* FROM pg_attribute JOIN pg_class c ON c.oid = attrelid, LATERAL aclexplode(attacl) a WHERE relnamespace = 'outbox'::regnamespace
	UNION ALL SELECT 'function ' || p.oid::regprocedure, proowner, a.* FROM pg_proc p, LATERAL aclexplode(coalesce(proacl, acldefault('f', proowner))) a WHERE pronamespace = 'outbox'::regnamespace
	UNION ALL SELECT 'type ' || t.oid::regtype, typowner, a.* FROM pg_type t, LATERAL aclexplode(coalesce(typacl, acldefault('T', typowner))) a WHERE typnamespace = 'outbox'::regnamespace AND (typtype = 'e' OR t.oid = 'outbox.claimed'::regtype)
	UNION ALL SELECT 'schema ' || nspname, nspowner, a.* FROM pg_namespace n, LATERAL aclexplode(coalesce(nspacl, acldefault('n', nspowner))) a WHERE nspname = 'outbox';
SELECT is_empty('SELECT object, privilege_type FROM acl WHERE grantee = 0', 'PUBLIC has nothing');
SELECT is_empty('SELECT object, grantee::regrole, privilege_type FROM acl WHERE is_grantable AND grantee <> owner', 'no grant options');
SELECT is_empty($$SELECT object, grantee::regrole FROM acl WHERE grantee <> owner AND grantee <> ALL (ARRAY['outbox_ingest', 'outbox_executor', 'outbox_operator', 'outbox_readonly', 'outbox_auditor', 'outbox_privacy', 'outbox_lookup']::regrole[]::oid[])$$,
	'nobody but the roles has anything');
SELECT is_empty($$SELECT object FROM acl WHERE object LIKE 'column %'$$, 'no rights by column');
SELECT is_empty($$SELECT object, grantee::regrole, privilege_type FROM acl WHERE grantee <> owner AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER', 'REFERENCES', 'CREATE', 'MAINTAIN')$$,
	'no runtime role may write, or make objects');
-- What is made later in the schema gives PUBLIC nothing by default either.
SELECT is_empty($$SELECT defaclobjtype, defaclacl FROM pg_default_acl WHERE defaclrole = 'outbox_owner'::regrole$$, 'no default privileges of outbox_owner');

-- Each role cannot read what it may not, whatever way: the views run with the rights
-- of their owner, so a reader of a view sees no table it was not given.
SELECT is_empty($$SELECT c.oid::regclass FROM pg_class c WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'v' AND coalesce(reloptions::text, '') ~ 'security_invoker=(true|on|1)'$$,
	'views run with the rights of their owner');
SET ROLE outbox_operator;
SELECT lives_ok('SELECT * FROM outbox.status', 'the operator reads the status');
SELECT lives_ok('SELECT * FROM outbox.stats, outbox.workers', 'and what is counted, and the workers');
SELECT lives_ok('SELECT outbox.prometheus()', 'and the metrics');
SELECT lives_ok('SELECT * FROM outbox.queues, outbox.pending, outbox.messages, outbox.attempts', 'and the tables that the operator works on');
SELECT throws_ok('SELECT * FROM outbox.replays', '42501', 'permission denied for table replays', 'but not the table beneath a view');
SELECT lives_ok('SELECT * FROM outbox.maintain(), outbox.check(), outbox.workers', 'and runs the lines of the README');
SET ROLE outbox_readonly;
SELECT lives_ok('SELECT * FROM outbox.messages', 'readonly reads messages through the parent');
SELECT lives_ok('SELECT outbox.prometheus()', 'and the metrics');
SELECT throws_ok('SELECT outbox.reset_stats()', '42501', 'permission denied for function reset_stats', 'but does not reset the counters');
SELECT throws_ok('SELECT * FROM outbox.sequences', '42501', 'permission denied for view sequences', 'but not the sequences');
SELECT throws_ok('SELECT * FROM outbox.key_numbers', '42501', 'permission denied for table key_numbers', 'nor what is beneath them');
SET ROLE outbox_auditor;
SELECT lives_ok('SELECT * FROM outbox.attempts', 'the auditor reads the ledger');
SELECT lives_ok('SELECT outbox.prometheus()', 'and the metrics');
SELECT throws_ok('SELECT * FROM outbox.sequences', '42501', 'permission denied for view sequences', 'but not the sequences');
SET ROLE outbox_executor;
SELECT throws_ok('DELETE FROM outbox.pending', '42501', 'permission denied for table pending', 'the executor cannot delete');
SELECT throws_ok('SELECT * FROM outbox.stats', '42501', 'permission denied for view stats', 'and sees no counters');
SET ROLE outbox_ingest;
SELECT throws_ok('SELECT * FROM outbox.claim(''w'')', '42501', 'permission denied for function claim', 'ingest cannot claim');
SET ROLE regress_outbox_public;
SELECT throws_ok('SELECT * FROM outbox.enqueue(''e'', ''1'')', '42501', 'permission denied for schema outbox', 'PUBLIC cannot even name them');
RESET ROLE;

SELECT * FROM finish();
ROLLBACK;
